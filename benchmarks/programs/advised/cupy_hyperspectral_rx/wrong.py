"""Reed-Xiaoli anomaly detection in hyperspectral imagery, block of scan lines by block."""

import json
import statistics
import time

import cupy as cp
import cupyx
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


MEAN_BLOCKS = 528
SCORE_BLOCKS = 1056

# A thread reads 8 bands of a pixel at once, as 16 bytes; 16 threads share a pixel.
SOURCE = r"""
__device__ __forceinline__ void unpack(uint4 c, float* v) {
    unsigned words[4] = {c.x, c.y, c.z, c.w};
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        v[2 * k] = float(words[k] & 0xffffu) * GAIN_F - OFFSET_F;
        v[2 * k + 1] = float(words[k] >> 16) * GAIN_F - OFFSET_F;
    }
}

// Weighted sum of the radiance over a block's pixels, for each band.
extern "C" __global__ void partial_means(const uint4* counts, const float* weights, float* partial) {
    __shared__ float sums[16][128];
    int group = threadIdx.x % 16, lane = threadIdx.x / 16;
    float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    #pragma unroll 4
    for (int p = blockIdx.x * 16 + lane; p < PIXELS_N; p += gridDim.x * 16) {
        float v[8], w = weights[p];
        unpack(counts[p * 16 + group], v);
        #pragma unroll
        for (int k = 0; k < 8; ++k) acc[k] += w * v[k];
    }
    #pragma unroll
    for (int k = 0; k < 8; ++k) sums[lane][group * 8 + k] = acc[k];
    __syncthreads();
    if (threadIdx.x < 128) {
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += sums[k][threadIdx.x];
        partial[blockIdx.x * 128 + threadIdx.x] = sum;
    }
}

extern "C" __global__ void centre(const uint4* counts, const float4* mean, float4* radiance) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= PIXELS_N * 16) return;
    float v[8];
    unpack(counts[i], v);
    float4 a = mean[i % 16 * 2], b = mean[i % 16 * 2 + 1];
    radiance[i * 2] = make_float4(v[0] - a.x, v[1] - a.y, v[2] - a.z, v[3] - a.w);
    radiance[i * 2 + 1] = make_float4(v[4] - b.x, v[5] - b.y, v[6] - b.z, v[7] - b.w);
}

// Squared length of each pixel's vector, a warp each; alarms, sum and largest of a block's pixels.
extern "C" __global__ void lengths(const float4* whitened, float* scores, double* partial) {
    __shared__ double shared[3][8];
    int lane = threadIdx.x % 32, w = threadIdx.x / 32;
    double alarms = 0, sum = 0, top = 0;
    #pragma unroll 4
    for (int p = blockIdx.x * 8 + w; p < PIXELS_N; p += gridDim.x * 8) {
        float4 v = whitened[p * 32 + lane];
        float s = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        #pragma unroll
        for (int d = 16; d; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
        if (lane == 0) {
            scores[p] = s;
            alarms += s > THRESHOLD_F;
            sum += s;
            top = s > top ? double(s) : top;
        }
    }
    if (lane == 0) {
        shared[0][w] = alarms;
        shared[1][w] = sum;
        shared[2][w] = top;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; ++k) {
            alarms += shared[0][k];
            sum += shared[1][k];
            top = shared[2][k] > top ? shared[2][k] : top;
        }
        partial[blockIdx.x] = alarms;
        partial[gridDim.x + blockIdx.x] = sum;
        partial[2 * gridDim.x + blockIdx.x] = top;
    }
}

extern "C" __global__ void add_totals(const double* partial, int n, const float* factor,
                                      double* totals) {
    __shared__ double shared[3][256];
    int t = threadIdx.x;
    double alarms = 0, sum = 0, top = 0;
    for (int k = t; k < n; k += 256) {
        alarms += partial[k];
        sum += partial[n + k];
        top = partial[2 * n + k] > top ? partial[2 * n + k] : top;
    }
    // A factorization that failed leaves a diagonal that is not positive: make the totals NaN.
    if (t < 128 && !(factor[t * 129] > 0)) sum = nan("");
    shared[0][t] = alarms;
    shared[1][t] = sum;
    shared[2][t] = top;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (t < half) {
            shared[0][t] += shared[0][t + half];
            shared[1][t] += shared[1][t + half];
            double other = shared[2][t + half];
            shared[2][t] = other > shared[2][t] ? other : shared[2][t];
        }
    }
    if (t == 0) {
        totals[0] += shared[0][0];
        totals[1] += shared[1][0] / PIXELS_N;
        totals[2] += shared[2][0];
    }
}
"""
assert BANDS == 128
MODULE = cp.RawModule(
    code=SOURCE.replace("GAIN_F", f"{GAIN!r}f")
    .replace("OFFSET_F", f"{OFFSET!r}f")
    .replace("THRESHOLD_F", f"{THRESHOLD!r}f")
    .replace("PIXELS_N", str(PIXELS))
)
PARTIAL_MEANS, CENTRE, LENGTHS, ADD_TOTALS = (
    MODULE.get_function(name) for name in ("partial_means", "centre", "lengths", "add_totals")
)
REGULARIZE = cp.ElementwiseKernel(
    "float32 product, float32 ridge, float32 pixels",
    "float32 covariance",
    "covariance = product / pixels + ridge",
    "regularize",
)


def whiten(counts, weights, constants):
    """Every pixel's offset from its block's mean, in units of the background's spread."""
    identity, ridge = constants
    partial = cp.empty((MEAN_BLOCKS, BANDS), dtype=cp.float32)
    PARTIAL_MEANS((MEAN_BLOCKS,), (256,), (counts, weights, partial))
    mean = partial.sum(axis=0)
    radiance = cp.empty((PIXELS, BANDS), dtype=cp.float32)
    CENTRE((PIXELS * 16 // 256,), (256,), (counts, mean, radiance))
    covariance = REGULARIZE(radiance.T @ radiance, ridge, cp.float32(PIXELS))
    factor = cp.linalg.cholesky(covariance)
    return radiance @ solve_triangular(factor, identity, lower=True).T, factor


def process_block(counts, weights, totals, constants):
    whitened, factor = whiten(counts, weights, constants)
    # Squared Mahalanobis distance of every pixel from its block's background.
    scores = cp.empty(PIXELS, dtype=cp.float32)
    partial = cp.empty((3, SCORE_BLOCKS), dtype=cp.float64)
    LENGTHS((SCORE_BLOCKS,), (256,), (whitened, scores, partial))
    ADD_TOTALS((1,), (256,), (partial, cp.int32(SCORE_BLOCKS), factor, totals))


def main():
    rng = cp.random.default_rng(11)
    scene = simulate_scene(rng)
    weights = cp.full(PIXELS, 1.0 / PIXELS, dtype=cp.float32)
    totals = cp.zeros(3, dtype=cp.float64)
    identity = cp.eye(BANDS, dtype=cp.float32)
    constants = identity, RIDGE * identity
    cp.get_default_memory_pool().free_all_blocks()

    done = 0
    times = []

    def step():
        nonlocal done
        process_block(scene[done % len(scene)], weights, totals, constants)
        done += 1

    # No wait for the factorization's status in each step: a failure leaves NaN, seen at the end.
    with cupyx.errstate(linalg="ignore"):
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
    if mean != mean:
        raise ArithmeticError("a covariance was not positive definite")
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
