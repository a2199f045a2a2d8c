"""Kernel density at 131072 places from 4096 samples in space, with a Gaussian kernel."""

import cupy

from benchmarks.field import Launch, Pair, Work

PLACES, SAMPLES = 1 << 17, 4096
CODE = r"""
extern "C" __global__ void density_product(
    const float4* places, const float4* samples, float* out, int count) {
  __shared__ float4 tile[256];
  float4 p = places[blockIdx.x * 256 + threadIdx.x];
  float sum = 0.0f;
  for (int start = 0; start < count; start += 256) {
    tile[threadIdx.x] = samples[start + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 256; ++j) {
      float dx = p.x - tile[j].x, dy = p.y - tile[j].y, dz = p.z - tile[j].z;
      sum += expf(-8.0f * dx * dx) * expf(-8.0f * dy * dy) * expf(-8.0f * dz * dz);
    }
    __syncthreads();
  }
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

extern "C" __global__ void density_sum(
    const float4* places, const float4* samples, float* out, int count) {
  __shared__ float4 tile[256];
  float4 p = places[blockIdx.x * 256 + threadIdx.x];
  float sum = 0.0f;
  for (int start = 0; start < count; start += 256) {
    tile[threadIdx.x] = samples[start + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 256; ++j) {
      float dx = p.x - tile[j].x, dy = p.y - tile[j].y, dz = p.z - tile[j].z;
      sum += expf(-8.0f * (dx * dx + dy * dy + dz * dz));
    }
    __syncthreads();
  }
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""


def inputs():
    rng = cupy.random.default_rng(1)
    return tuple(rng.random((count, 4), dtype="float32") for count in (PLACES, SAMPLES))


def make(variant, places, samples):
    name = "density_product" if variant == "before" else "density_sum"
    kernel = cupy.RawKernel(CODE, name, options=("-use_fast_math",))
    out = cupy.empty(PLACES, "float32")
    return Work(
        lambda: kernel((PLACES // 256,), (256,), (places, samples, out, cupy.int32(SAMPLES))),
        out.get,
    )


PAIR = Pair(inputs, make, Launch("density_"), tolerance=1e-3)
