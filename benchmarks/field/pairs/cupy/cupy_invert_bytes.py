"""Negative of a picture of 256 million grey values."""

import cupy

from benchmarks.field import Launch, Pair, Work

COUNT = 1 << 28
CODE = r"""
extern "C" __global__ void invert_one(const unsigned char* in, unsigned char* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 255 - in[i];
}

extern "C" __global__ void invert_sixteen(const uint4* in, uint4* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  uint4 v = in[i];
  out[i] = make_uint4(~v.x, ~v.y, ~v.z, ~v.w);
}
"""


def inputs():
    rng = cupy.random.default_rng(8)
    return ((rng.random(COUNT, dtype="float32") * 256).astype("uint8"),)


def make(variant, x):
    y = cupy.empty_like(x)
    name, each = ("invert_one", 1) if variant == "before" else ("invert_sixteen", 16)
    kernel = cupy.RawKernel(CODE, name)
    return Work(lambda: kernel((COUNT // each // 256,), (256,), (x, y)), lambda: y[::17].get())


PAIR = Pair(inputs, make, Launch("invert_"), tolerance=1e-9)
