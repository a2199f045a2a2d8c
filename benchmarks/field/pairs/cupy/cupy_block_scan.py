"""Running sums of 32768 chunks of 1024 floats."""

import cupy

from benchmarks.field import Launch, Pair, Work

CHUNKS = 1 << 15
CODE = r"""
extern "C" __global__ void scan_steps(const float* in, float* out) {
  __shared__ float part[1024];
  int t = threadIdx.x;
  part[t] = in[blockIdx.x * 1024 + t];
  __syncthreads();
  for (int step = 1; step < 1024; step *= 2) {
    float other = t >= step ? part[t - step] : 0.0f;
    __syncthreads();
    part[t] += other;
    __syncthreads();
  }
  out[blockIdx.x * 1024 + t] = part[t];
}

__device__ float scan_lanes(float value) {
  for (int step = 1; step < 32; step *= 2) {
    float other = __shfl_up_sync(0xffffffffu, value, step);
    if ((threadIdx.x & 31) >= step) value += other;
  }
  return value;
}

extern "C" __global__ void scan_warps(const float4* in, float4* out) {
  __shared__ float sums[8];
  int t = threadIdx.x;
  float4 v = in[blockIdx.x * 256 + t];
  v.y += v.x;
  v.z += v.y;
  v.w += v.z;
  float scanned = scan_lanes(v.w);
  if ((t & 31) == 31) sums[t / 32] = scanned;
  __syncthreads();
  float before = scanned - v.w;
  for (int warp = 0; warp < t / 32; ++warp) before += sums[warp];
  out[blockIdx.x * 256 + t] = make_float4(v.x + before, v.y + before, v.z + before, v.w + before);
}
"""


def inputs():
    return (cupy.random.default_rng(5).random((CHUNKS, 1024), dtype="float32"),)


def make(variant, x):
    name, block = ("scan_steps", 1024) if variant == "before" else ("scan_warps", 256)
    kernel = cupy.RawKernel(CODE, name)
    y = cupy.empty_like(x)
    return Work(lambda: kernel((CHUNKS,), (block,), (x, y)), y.get)


PAIR = Pair(inputs, make, Launch("scan_"), tolerance=1e-4)
