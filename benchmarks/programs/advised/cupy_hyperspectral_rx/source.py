"""Reed-Xiaoli anomaly detection in hyperspectral imagery, block of scan lines by block."""

import json
import statistics
import time

import cupy as cp

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

SCORE_BLOCKS = 1056
CONVERT_THREADS = 256
CONVERT_BLOCKS = PIXELS * BANDS // (8 * CONVERT_THREADS)
assert BANDS == 128 and PIXELS * BANDS % (8 * CONVERT_THREADS) == 0

SOURCE = """
#define PIXELS %(PIXELS)d
#define BANDS 128
#define GAIN %(GAIN)rf
#define OFFSET %(OFFSET)rf
#define RIDGE %(RIDGE)rf
#define THRESHOLD %(THRESHOLD)rf
""" % {
    "PIXELS": PIXELS,
    "GAIN": GAIN,
    "OFFSET": OFFSET,
    "RIDGE": RIDGE,
    "THRESHOLD": THRESHOLD,
} + r"""
__device__ __forceinline__ float calibrated(unsigned count) {
    return __fsub_rn(__fmul_rn((float)count, GAIN), OFFSET);
}

__device__ __forceinline__ void eight(uint4 c, float* r) {
    r[0] = calibrated(c.x & 0xffffu); r[1] = calibrated(c.x >> 16);
    r[2] = calibrated(c.y & 0xffffu); r[3] = calibrated(c.y >> 16);
    r[4] = calibrated(c.z & 0xffffu); r[5] = calibrated(c.z >> 16);
    r[6] = calibrated(c.w & 0xffffu); r[7] = calibrated(c.w >> 16);
}

extern "C" __global__ void calibrate(const uint4* __restrict__ counts, float4* __restrict__ radiance) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float r[8];
    eight(counts[i], r);
    radiance[2 * i] = make_float4(r[0], r[1], r[2], r[3]);
    radiance[2 * i + 1] = make_float4(r[4], r[5], r[6], r[7]);
}

// The calibrated counts less the mean of their band.
extern "C" __global__ void center(const uint4* __restrict__ counts, const float4* __restrict__ mean,
                                  float4* __restrict__ radiance) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float r[8];
    eight(counts[i], r);
    int band = i % (BANDS / 8);
    float4 m = mean[2 * band], n = mean[2 * band + 1];
    radiance[2 * i] = make_float4(__fsub_rn(r[0], m.x), __fsub_rn(r[1], m.y),
                                  __fsub_rn(r[2], m.z), __fsub_rn(r[3], m.w));
    radiance[2 * i + 1] = make_float4(__fsub_rn(r[4], n.x), __fsub_rn(r[5], n.y),
                                      __fsub_rn(r[6], n.z), __fsub_rn(r[7], n.w));
}

// Inverse of the Cholesky factor of gram / PIXELS + RIDGE * I, in one block of 32 x 32 threads:
// elimination of [A | I] in place, the matrix in registers, one barrier a pivot. A thread holds
// the rows ty + 32 a and the columns tx + 32 b; the trailing part stays symmetric, so that the
// pivot's row also gives its column.
extern "C" __global__ void __launch_bounds__(1024) inverse_factor(const float* __restrict__ gram,
                                                                  float* __restrict__ inverse) {
    __shared__ double row[2][BANDS], factor[2][BANDS], root[BANDS];
    int tx = threadIdx.x, ty = threadIdx.y;
    double x[4][4];
    #pragma unroll
    for (int a = 0; a < 4; ++a)
        #pragma unroll
        for (int b = 0; b < 4; ++b) {
            int i = ty + 32 * a, j = tx + 32 * b;
            // one triangle serves both, which makes the matrix exactly symmetric
            float v = __fdiv_rn(gram[i > j ? i * BANDS + j : j * BANDS + i], (float)PIXELS);
            if (i == j) v = __fadd_rn(v, RIDGE);
            x[a][b] = v;
        }
    #pragma unroll
    for (int p = 0; p < 4; ++p)
        for (int r = 0; r < 32; ++r) {
            int buffer = r & 1;
            if (ty == r) {
                double pivot = __shfl_sync(0xffffffffu, x[p][p], r);
                double reciprocal = 1.0 / pivot;
                #pragma unroll
                for (int b = 0; b < 4; ++b) {
                    row[buffer][tx + 32 * b] = x[p][b];
                    factor[buffer][tx + 32 * b] = x[p][b] * reciprocal;
                }
                if (tx == r) root[r + 32 * p] = pivot;
            }
            __syncthreads();
            double pivot_row[4];
            #pragma unroll
            for (int b = 0; b < 4; ++b) pivot_row[b] = row[buffer][tx + 32 * b];
            #pragma unroll
            for (int a = p; a < 4; ++a) {
                if (a > p || ty > r) {
                    double f = factor[buffer][ty + 32 * a];
                    #pragma unroll
                    for (int b = 0; b < 4; ++b) {
                        double v = x[a][b] - f * pivot_row[b];
                        x[a][b] = (b == p && tx == r) ? -f : v;
                    }
                }
            }
        }
    __syncthreads();
    #pragma unroll
    for (int a = 0; a < 4; ++a) {
        int i = ty + 32 * a;
        double scale = rsqrt(root[i]);
        #pragma unroll
        for (int b = 0; b < 4; ++b) {
            int j = tx + 32 * b;
            inverse[i * BANDS + j] = (float)(j < i ? x[a][b] * scale : (j == i ? scale : 0.0));
        }
    }
}

// Squared norm of every row (a warp each), and of these the alarms, the mean and the largest,
// added to the totals by the block that ends last.
extern "C" __global__ void __launch_bounds__(256) reduce_scores(const float4* __restrict__ whitened,
                                                                double* __restrict__ partial,
                                                                unsigned* __restrict__ ticket,
                                                                double* __restrict__ totals) {
    __shared__ double part[3][256];
    __shared__ bool last;
    int lane = threadIdx.x & 31;
    int warps = gridDim.x * 8;
    double alarms = 0, sum = 0, top = 0;
    #pragma unroll 4
    for (int i = blockIdx.x * 8 + (threadIdx.x >> 5); i < PIXELS; i += warps) {
        float4 w = whitened[i * (BANDS / 4) + lane];
        float s = (w.x * w.x + w.y * w.y) + (w.z * w.z + w.w * w.w);
        #pragma unroll
        for (int o = 16; o > 0; o /= 2) s += __shfl_xor_sync(0xffffffffu, s, o);
        if (lane == 0) {
            alarms += s > THRESHOLD;
            sum += s;
            top = fmax(top, (double)s);
        }
    }
    part[0][threadIdx.x] = alarms;
    part[1][threadIdx.x] = sum;
    part[2][threadIdx.x] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) {
            alarms += part[0][32 * w];
            sum += part[1][32 * w];
            top = fmax(top, part[2][32 * w]);
        }
        partial[3 * blockIdx.x] = alarms;
        partial[3 * blockIdx.x + 1] = sum;
        partial[3 * blockIdx.x + 2] = top;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    alarms = sum = top = 0;
    for (int b = threadIdx.x; b < gridDim.x; b += 256) {
        alarms += __ldcg(&partial[3 * b]);
        sum += __ldcg(&partial[3 * b + 1]);
        top = fmax(top, __ldcg(&partial[3 * b + 2]));
    }
    part[0][threadIdx.x] = alarms;
    part[1][threadIdx.x] = sum;
    part[2][threadIdx.x] = top;
    __syncthreads();
    for (int o = 128; o > 0; o /= 2) {
        if (threadIdx.x < o) {
            part[0][threadIdx.x] += part[0][threadIdx.x + o];
            part[1][threadIdx.x] += part[1][threadIdx.x + o];
            part[2][threadIdx.x] = fmax(part[2][threadIdx.x], part[2][threadIdx.x + o]);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        totals[0] += part[0][0];
        totals[1] += part[1][0] / PIXELS;
        totals[2] += part[2][0];
        *ticket = 0;
    }
}
"""

MODULE = cp.RawModule(code=SOURCE)
CALIBRATE = MODULE.get_function("calibrate")
CENTER = MODULE.get_function("center")
INVERSE_FACTOR = MODULE.get_function("inverse_factor")
REDUCE_SCORES = MODULE.get_function("reduce_scores")


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


class Work:
    """Buffers that every block uses again."""

    def __init__(self):
        self.radiance = cp.empty((PIXELS, BANDS), dtype=cp.float32)
        self.inverse = cp.empty((BANDS, BANDS), dtype=cp.float32)
        self.partial = cp.empty(3 * SCORE_BLOCKS, dtype=cp.float64)
        self.ticket = cp.zeros(1, dtype=cp.uint32)


def process_block(counts, weights, totals, work):
    """Squared Mahalanobis distance of every pixel from its block's background, summarised."""
    radiance = work.radiance
    CALIBRATE((CONVERT_BLOCKS,), (CONVERT_THREADS,), (counts, radiance))
    mean = weights @ radiance
    CENTER((CONVERT_BLOCKS,), (CONVERT_THREADS,), (counts, mean, radiance))
    gram = radiance.T @ radiance
    INVERSE_FACTOR((1,), (32, 32), (gram, work.inverse))
    whitened = radiance @ work.inverse.T
    REDUCE_SCORES((SCORE_BLOCKS,), (256,), (whitened, work.partial, work.ticket, totals))


def main():
    rng = cp.random.default_rng(11)
    scene = simulate_scene(rng)
    weights = cp.full(PIXELS, 1.0 / PIXELS, dtype=cp.float32)
    totals = cp.zeros(3, dtype=cp.float64)
    cp.get_default_memory_pool().free_all_blocks()
    work = Work()

    done = 0
    times = []

    def step():
        nonlocal done
        process_block(scene[done % len(scene)], weights, totals, work)
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
