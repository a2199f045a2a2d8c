"""Reed-Xiaoli anomaly detection in hyperspectral imagery, block of scan lines by block."""

import json
import statistics
import time

import cupy as cp
import numpy as np
from cupyx.scipy.linalg import solve_triangular

LINES = 4096
SAMPLES = 640
BANDS = 128
BLOCK_LINES = 256
MATERIALS = 6
GAIN = 0.0125
OFFSET = 1.5
RIDGE = 1e-3
THRESHOLD = 190.0  # of a chi-square with BANDS degrees of freedom
WARMUP = 16
BLOCKS = 10
STEPS_PER_BLOCK = 40

PIXELS = BLOCK_LINES * SAMPLES
THREADS = 256
SCORE_GRID = 1024

# Each thread takes 8 bands of a pixel. Rounds as separate multiplications and subtractions do.
calibrate_kernel = cp.RawKernel(
    r"""
extern "C" __global__ void calibrate(const uint4* counts, const float4* mean, float4* radiance,
                                     int n, int groups, float gain, float offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 c = counts[i];
    int g = i % groups;
    float4 m0 = mean[2 * g], m1 = mean[2 * g + 1];
    #define RADIANCE(count, m) \
        __fsub_rn(__fsub_rn(__fmul_rn((float)(count), gain), offset), m)
    float4 r0, r1;
    r0.x = RADIANCE(c.x & 0xffffu, m0.x);
    r0.y = RADIANCE(c.x >> 16, m0.y);
    r0.z = RADIANCE(c.y & 0xffffu, m0.z);
    r0.w = RADIANCE(c.y >> 16, m0.w);
    r1.x = RADIANCE(c.z & 0xffffu, m1.x);
    r1.y = RADIANCE(c.z >> 16, m1.y);
    r1.z = RADIANCE(c.w & 0xffffu, m1.z);
    r1.w = RADIANCE(c.w >> 16, m1.w);
    radiance[2 * i] = r0;
    radiance[2 * i + 1] = r1;
}
""",
    "calibrate",
)

regularise = cp.ElementwiseKernel(
    "float32 product, float32 count, float32 ridge",
    "float32 covariance",
    f"covariance = product / count + (i / {BANDS} == i % {BANDS} ? ridge : 0.0f)",
    "regularise",
)

# A warp sums the squares of a pixel's 128 whitened bands; a block leaves its count, sum and maximum.
score_kernel = cp.RawKernel(
    r"""
extern "C" __global__ void score(const float4* whitened, float* scores, int pixels,
                                 float threshold, int* alarms, double* sums, float* tops) {
    __shared__ int warp_alarms[8];
    __shared__ double warp_sums[8];
    __shared__ float warp_tops[8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int count = 0;
    double sum = 0.0;
    float top = 0.0f;
    for (int p = blockIdx.x * 8 + warp; p < pixels; p += gridDim.x * 8) {
        float4 v = whitened[(long long)p * 32 + lane];
        float s = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        for (int k = 16; k > 0; k /= 2) s += __shfl_xor_sync(0xffffffffu, s, k);
        if (lane == 0) scores[p] = s;
        count += s > threshold;
        sum += s;
        top = fmaxf(top, s);
    }
    if (lane == 0) {
        warp_alarms[warp] = count;
        warp_sums[warp] = sum;
        warp_tops[warp] = top;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; ++k) {
            count += warp_alarms[k];
            sum += warp_sums[k];
            top = fmaxf(top, warp_tops[k]);
        }
        alarms[blockIdx.x] = count;
        sums[blockIdx.x] = sum;
        tops[blockIdx.x] = top;
    }
}
""",
    "score",
)

total_kernel = cp.RawKernel(
    r"""
extern "C" __global__ void total(const int* alarms, const double* sums, const float* tops, int n,
                                 int pixels, double* totals) {
    __shared__ int all_alarms[256];
    __shared__ double all_sums[256];
    __shared__ float all_tops[256];
    int t = threadIdx.x;
    int count = 0;
    double sum = 0.0;
    float top = 0.0f;
    for (int i = t; i < n; i += 256) {
        count += alarms[i];
        sum += sums[i];
        top = fmaxf(top, tops[i]);
    }
    all_alarms[t] = count;
    all_sums[t] = sum;
    all_tops[t] = top;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (t < k) {
            all_alarms[t] += all_alarms[t + k];
            all_sums[t] += all_sums[t + k];
            all_tops[t] = fmaxf(all_tops[t], all_tops[t + k]);
        }
        __syncthreads();
    }
    if (t == 0) {
        totals[0] += all_alarms[0];
        totals[1] += all_sums[0] / pixels;
        totals[2] += all_tops[0];
    }
}
""",
    "total",
)


def calibrate(counts, mean, radiance):
    """Radiance of the counts, less the mean of each band."""
    n = counts.size // 8
    calibrate_kernel(
        (-(-n // THREADS),),
        (THREADS,),
        (
            counts,
            mean,
            radiance,
            np.int32(n),
            np.int32(BANDS // 8),
            np.float32(GAIN),
            np.float32(OFFSET),
        ),
    )


def simulate_scene(rng):
    """Counts of the sensor: mixed ground materials, noise, and a few odd pixels."""
    spectra = 40 + 30 * rng.random((MATERIALS, BANDS), dtype=cp.float32)
    scene = cp.empty((LINES // BLOCK_LINES, PIXELS, BANDS), dtype=cp.uint16)
    for block in range(len(scene)):
        share = rng.random((PIXELS, MATERIALS), dtype=cp.float32)
        share /= share.sum(axis=1, keepdims=True)
        radiance = share @ spectra
        radiance += 0.6 * rng.standard_normal((PIXELS, BANDS), dtype=cp.float32)
        odd = cp.arange(0, PIXELS, 2000)
        radiance[odd, 40:56] += 2.5
        scene[block] = cp.rint((radiance + OFFSET) / GAIN).astype(cp.uint16)
    return scene


def rx_scores(counts, weights, constants):
    """Squared Mahalanobis distances of a block's pixels from its background, whitened."""
    zero, identity = constants
    radiance = cp.empty((PIXELS, BANDS), dtype=cp.float32)
    calibrate(counts, zero, radiance)
    calibrate(counts, weights @ radiance, radiance)
    covariance = regularise(radiance.T @ radiance, np.float32(PIXELS), np.float32(RIDGE))
    factor = cp.linalg.cholesky(covariance)
    inverse = solve_triangular(factor, identity, lower=True)
    return cp.ascontiguousarray(radiance @ inverse.T)


def process_block(counts, weights, totals, constants):
    whitened = rx_scores(counts, weights, constants)
    scores = cp.empty(PIXELS, dtype=cp.float32)
    alarms = cp.empty(SCORE_GRID, dtype=cp.int32)
    sums = cp.empty(SCORE_GRID, dtype=cp.float64)
    tops = cp.empty(SCORE_GRID, dtype=cp.float32)
    score_kernel(
        (SCORE_GRID,),
        (THREADS,),
        (whitened, scores, np.int32(PIXELS), np.float32(THRESHOLD), alarms, sums, tops),
    )
    total_kernel(
        (1,),
        (THREADS,),
        (alarms, sums, tops, np.int32(SCORE_GRID), np.int32(PIXELS), totals),
    )


def main():
    rng = cp.random.default_rng(11)
    scene = simulate_scene(rng)
    weights = cp.full(PIXELS, 1.0 / PIXELS, dtype=cp.float32)
    totals = cp.zeros(3, dtype=cp.float64)
    constants = cp.zeros(BANDS, dtype=cp.float32), cp.eye(BANDS, dtype=cp.float32)
    cp.get_default_memory_pool().free_all_blocks()

    done = 0
    times = []

    def step():
        nonlocal done
        process_block(scene[done % len(scene)], weights, totals, constants)
        done += 1

    for _ in range(WARMUP):
        step()
    cp.cuda.Device().synchronize()
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    alarms, mean, top = (totals / done).get().tolist()
    us = statistics.median(times) * 1e6
    print(f"{BLOCK_LINES * 1e6 / us:.0f} scan lines/s, {alarms:.1f} alarms a block")
    print(
        json.dumps(
            {
                "program": "cupy_hyperspectral_rx",
                "steps": done,
                "us": us,
                "result": [alarms, mean, top],
            }
        )
    )


if __name__ == "__main__":
    main()
