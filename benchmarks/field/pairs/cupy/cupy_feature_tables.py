"""Four features of each of 16 million points, looked up in a hash grid of a million cells."""

import cupy

from benchmarks.field import Launch, Pair, Work

POINTS, CELLS = 1 << 24, 1 << 20
CODE = r"""
extern "C" __global__ void features_apart(
    const unsigned* cells, const float* a, const float* b, const float* c, const float* d,
    float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned cell = cells[i];
  out[i] = a[cell] * b[cell] + c[cell] * d[cell];
}

extern "C" __global__ void features_together(
    const unsigned* cells, const float4* features, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 f = features[cells[i]];
  out[i] = f.x * f.y + f.z * f.w;
}
"""


def inputs():
    rng = cupy.random.default_rng(12)
    cells = (rng.random(POINTS, dtype="float32") * CELLS).astype("uint32") % CELLS
    features = rng.random((CELLS, 4), dtype="float32")
    return cells, features, cupy.ascontiguousarray(features.T)


def make(variant, cells, features, apart):
    out = cupy.empty(POINTS, "float32")
    if variant == "before":
        kernel, given = cupy.RawKernel(CODE, "features_apart"), (cells, *apart, out)
    else:
        kernel, given = cupy.RawKernel(CODE, "features_together"), (cells, features, out)
    return Work(lambda: kernel((POINTS // 256,), (256,), given), out.get)


PAIR = Pair(inputs, make, Launch("features_"), tolerance=1e-6)
