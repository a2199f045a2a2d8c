"""Reed-Xiaoli anomaly detection in hyperspectral imagery, block of scan lines by block."""

import json
import statistics
import time

import cupy as cp
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


MEAN_GRID = 512
CENTRE_GRID = 1024
SCORE_GRID = 1280

SOURCE = r"""
// 16 threads read a pixel's 128 bands, 8 bands each
__device__ __forceinline__ float radiance_of(unsigned count) {
    return __fsub_rn(__fmul_rn((float)count, GAIN), OFFSET);
}

extern "C" __global__ void band_means(const uint4* __restrict__ counts, const float* __restrict__ weights,
                                      double* __restrict__ partial, int rows) {
    __shared__ float part[16][128];
    int group = threadIdx.x & 15, r = threadIdx.x >> 4;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    #pragma unroll 4
    for (int row = blockIdx.x * 16 + r; row < rows; row += gridDim.x * 16) {
        uint4 c = counts[(size_t)row * 16 + group];
        float w = weights[row];
        unsigned u[4] = {c.x, c.y, c.z, c.w};
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            sum[2 * k] += w * radiance_of(u[k] & 0xffffu);
            sum[2 * k + 1] += w * radiance_of(u[k] >> 16);
        }
    }
    #pragma unroll
    for (int k = 0; k < 8; ++k) part[r][group * 8 + k] = sum[k];
    __syncthreads();
    if (threadIdx.x < 128) {
        double all = 0;
        for (int k = 0; k < 16; ++k) all += part[k][threadIdx.x];
        partial[blockIdx.x * 128 + threadIdx.x] = all;
    }
}

extern "C" __global__ void centre(const uint4* __restrict__ counts, const double* __restrict__ mean,
                                  float4* __restrict__ out, int rows) {
    int group = threadIdx.x & 15, r = threadIdx.x >> 4;
    float m[8];
    #pragma unroll
    for (int k = 0; k < 8; ++k) m[k] = (float)mean[group * 8 + k];
    #pragma unroll 2
    for (int row = blockIdx.x * 16 + r; row < rows; row += gridDim.x * 16) {
        size_t at = (size_t)row * 16 + group;
        uint4 c = counts[at];
        out[2 * at] = make_float4(radiance_of(c.x & 0xffffu) - m[0], radiance_of(c.x >> 16) - m[1],
                                  radiance_of(c.y & 0xffffu) - m[2], radiance_of(c.y >> 16) - m[3]);
        out[2 * at + 1] = make_float4(radiance_of(c.z & 0xffffu) - m[4], radiance_of(c.z >> 16) - m[5],
                                      radiance_of(c.w & 0xffffu) - m[6], radiance_of(c.w >> 16) - m[7]);
    }
}

// a warp for a pixel: its score, and of all scores the alarms, the sum and the largest
extern "C" __global__ void score(const float4* __restrict__ whitened, double* __restrict__ partial, int rows) {
    __shared__ double part[3][8];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int alarms = 0;
    double sum = 0;
    float top = 0;
    #pragma unroll 4
    for (int row = blockIdx.x * 8 + warp; row < rows; row += gridDim.x * 8) {
        float4 v = whitened[(size_t)row * 32 + lane];
        float s = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        #pragma unroll
        for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
        alarms += s > THRESHOLD;
        sum += s;
        top = fmaxf(top, s);
    }
    if (lane == 0) {
        part[0][warp] = alarms;
        part[1][warp] = sum;
        part[2][warp] = top;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double a = 0, b = 0, c = 0;
        for (int k = 0; k < 8; ++k) {
            a += part[0][k];
            b += part[1][k];
            c = fmax(c, part[2][k]);
        }
        partial[blockIdx.x * 3] = a;
        partial[blockIdx.x * 3 + 1] = b;
        partial[blockIdx.x * 3 + 2] = c;
    }
}

extern "C" __global__ void add_totals(const double* __restrict__ partial, double* totals, int parts, int rows) {
    __shared__ double part[3][256];
    int t = threadIdx.x;
    double a = 0, b = 0, c = 0;
    for (int i = t; i < parts; i += 256) {
        a += partial[i * 3];
        b += partial[i * 3 + 1];
        c = fmax(c, partial[i * 3 + 2]);
    }
    part[0][t] = a;
    part[1][t] = b;
    part[2][t] = c;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) {
            part[0][t] += part[0][t + d];
            part[1][t] += part[1][t + d];
            part[2][t] = fmax(part[2][t], part[2][t + d]);
        }
        __syncthreads();
    }
    if (t == 0) {
        totals[0] += part[0][0];
        totals[1] += part[1][0] / rows;
        totals[2] += part[2][0];
    }
}
"""
for name, value in (("GAIN", GAIN), ("OFFSET", OFFSET), ("THRESHOLD", THRESHOLD)):
    SOURCE = f"#define {name} {value!r}f\n" + SOURCE

band_means = cp.RawKernel(SOURCE, "band_means")
centre = cp.RawKernel(SOURCE, "centre")
score = cp.RawKernel(SOURCE, "score")
add_totals = cp.RawKernel(SOURCE, "add_totals")
regularise = cp.ElementwiseKernel(
    "float32 product, float32 ridge, float32 pixels",
    "float32 covariance",
    "covariance = product / pixels + ridge",
    "regularise",
)


def whiten(counts, weights, eye, ridge):
    """Pixels of a block, centred and whitened: a row's squared length is its Mahalanobis distance."""
    rows = cp.int32(PIXELS)
    partial = cp.empty((MEAN_GRID, BANDS), dtype=cp.float64)
    band_means((MEAN_GRID,), (256,), (counts, weights, partial, rows))
    mean = partial.sum(axis=0)
    radiance = cp.empty((PIXELS, BANDS), dtype=cp.float32)
    centre((CENTRE_GRID,), (256,), (counts, mean, radiance, rows))
    covariance = regularise(radiance.T @ radiance, ridge, cp.float32(PIXELS))
    factor = cp.linalg.cholesky(covariance)
    inverse = solve_triangular(factor, eye, lower=True)
    return cp.ascontiguousarray(radiance @ inverse.T)


def process_block(counts, weights, totals, eye, ridge):
    whitened = whiten(counts, weights, eye, ridge)
    rows = cp.int32(PIXELS)
    partial = cp.empty((SCORE_GRID, 3), dtype=cp.float64)
    score((SCORE_GRID,), (256,), (whitened, partial, rows))
    add_totals((1,), (256,), (partial, totals, cp.int32(SCORE_GRID), rows))


def main():
    rng = cp.random.default_rng(11)
    scene = simulate_scene(rng)
    weights = cp.full(PIXELS, 1.0 / PIXELS, dtype=cp.float32)
    totals = cp.zeros(3, dtype=cp.float64)
    eye = cp.eye(BANDS, dtype=cp.float32)
    ridge = RIDGE * eye
    cp.get_default_memory_pool().free_all_blocks()

    done = 0
    times = []

    def step():
        nonlocal done
        process_block(scene[done % len(scene)], weights, totals, eye, ridge)
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
