"""A polynomial of degree 511 at 4 million points, one block an SM."""

import cupy

from benchmarks.field import Launch, Pair, Work

TERMS, THREADS, EACH = 512, 132 * 128, 256
CODE = r"""
__constant__ float terms[512];

template <int TAKE>
__device__ void horner(const float* x, float* out, int each) {
  int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (int k = 0; k < each; k += TAKE) {
    float value[TAKE], sum[TAKE];
#pragma unroll
    for (int j = 0; j < TAKE; ++j) {
      value[j] = x[(k + j) * threads + thread];
      sum[j] = 0.0f;
    }
#pragma unroll 16
    for (int term = 0; term < 512; ++term)
#pragma unroll
      for (int j = 0; j < TAKE; ++j) sum[j] = sum[j] * value[j] + terms[term];
#pragma unroll
    for (int j = 0; j < TAKE; ++j) out[(k + j) * threads + thread] = sum[j];
  }
}

extern "C" __global__ void horner_one(const float* x, float* out, int each) {
  horner<1>(x, out, each);
}

extern "C" __global__ void horner_eight(const float* x, float* out, int each) {
  horner<8>(x, out, each);
}
"""


def inputs():
    rng = cupy.random.default_rng(7)
    return rng.random(THREADS * EACH, dtype="float32"), rng.random(TERMS, dtype="float32")


def make(variant, x, terms):
    module = cupy.RawModule(code=CODE)
    cupy.ndarray(TERMS, "float32", module.get_global("terms"))[...] = terms
    kernel = module.get_function("horner_one" if variant == "before" else "horner_eight")
    out = cupy.empty_like(x)
    return Work(
        lambda: kernel((THREADS // 128,), (128,), (x, out, cupy.int32(EACH))), lambda: out.get()
    )


PAIR = Pair(inputs, make, Launch("horner_"), tolerance=1e-5)
