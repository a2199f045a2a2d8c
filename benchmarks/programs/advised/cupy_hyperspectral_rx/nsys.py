"""Reed-Xiaoli anomaly detection in hyperspectral imagery, block of scan lines by block."""

import json
import statistics
import time

import cupy as cp
import numpy as np

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


SOURCE = r"""
typedef unsigned int u32;
#define BANDS 128
#define PIXELS 163840
#define GRAM_BLOCKS 264
#define TILE 64
#define PITCH 136

// 2^23 + count, as a float: subtracting 2^23 + shift leaves count - shift exactly
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(0x4B000000u | (v & 0xffffu)); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(0x4B000000u | (v >> 16)); }
__device__ __forceinline__ u32 pack(float a, float b) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(b), "f"(a));
    return d;
}
__device__ __forceinline__ void mma(float (&c)[4], const u32 a0, const u32 a1, const u32 a2, const u32 a3,
                                    const u32 b0, const u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// Products and sums of the counts, less a whole number for each band near its mean. These
// differences are whole numbers that half precision holds exactly.
extern "C" __global__ void __launch_bounds__(256, 2)
gram(const uint4* __restrict__ counts, float* shift, float* products, float* sums) {
    __shared__ __align__(16) unsigned short tile[2][TILE * PITCH];
    __shared__ int whole[BANDS];
    __shared__ float total[BANDS];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    int group = tid & 15, row = tid >> 4;
    if (tid < BANDS) { whole[tid] = 0; total[tid] = 0.0f; }
    __syncthreads();
    {   // the shift: the mean of the first TILE pixels, the same in every block
        int part[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            uint4 v = __ldg(&counts[(row + 16 * j) * 16 + group]);
            part[0] += v.x & 0xffffu; part[1] += v.x >> 16;
            part[2] += v.y & 0xffffu; part[3] += v.y >> 16;
            part[4] += v.z & 0xffffu; part[5] += v.z >> 16;
            part[6] += v.w & 0xffffu; part[7] += v.w >> 16;
        }
        #pragma unroll
        for (int e = 0; e < 8; ++e) atomicAdd(&whole[8 * group + e], part[e]);
    }
    __syncthreads();
    float mid[8], sum[8];
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
        mid[e] = 8388608.0f + float((whole[8 * group + e] + TILE / 2) / TILE);
        sum[e] = 0.0f;
    }
    if (blockIdx.x == 0 && row == 0) {
        #pragma unroll
        for (int e = 0; e < 8; ++e) shift[8 * group + e] = mid[e];
    }

    float acc[2][8][4];
    #pragma unroll
    for (int a = 0; a < 2; ++a)
        #pragma unroll
        for (int b = 0; b < 8; ++b)
            #pragma unroll
            for (int c = 0; c < 4; ++c) acc[a][b][c] = 0.0f;
    int m0 = (warp & 3) * 32, n0 = (warp >> 2) * 64;
    int matrix = lane >> 3, line = lane & 7;
    u32 base = (u32)__cvta_generic_to_shared(&tile[0][0]);
    u32 a_at = base + 2 * (((matrix >> 1) * 8 + line) * PITCH + m0 + (matrix & 1) * 8);
    u32 b_at = base + 2 * (((matrix & 1) * 8 + line) * PITCH + n0 + (matrix >> 1) * 8);

    uint4 next[4];
    #pragma unroll
    for (int j = 0; j < 4; ++j)
        next[j] = __ldg(&counts[(blockIdx.x * TILE + row + 16 * j) * 16 + group]);
    int buffer = 0;
    for (int t = blockIdx.x; t < PIXELS / TILE; t += GRAM_BLOCKS) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            uint4 v = next[j], h;
            float d0 = low(v.x) - mid[0], d1 = high(v.x) - mid[1];
            float d2 = low(v.y) - mid[2], d3 = high(v.y) - mid[3];
            float d4 = low(v.z) - mid[4], d5 = high(v.z) - mid[5];
            float d6 = low(v.w) - mid[6], d7 = high(v.w) - mid[7];
            sum[0] += d0; sum[1] += d1; sum[2] += d2; sum[3] += d3;
            sum[4] += d4; sum[5] += d5; sum[6] += d6; sum[7] += d7;
            h.x = pack(d0, d1); h.y = pack(d2, d3); h.z = pack(d4, d5); h.w = pack(d6, d7);
            *(uint4*)&tile[buffer][(row + 16 * j) * PITCH + 8 * group] = h;
        }
        __syncthreads();
        if (t + GRAM_BLOCKS < PIXELS / TILE) {
            #pragma unroll
            for (int j = 0; j < 4; ++j)
                next[j] = __ldg(&counts[((t + GRAM_BLOCKS) * TILE + row + 16 * j) * 16 + group]);
        }
        u32 offset = buffer * (TILE * PITCH * 2);
        #pragma unroll
        for (int k = 0; k < TILE; k += 16) {
            u32 a[2][4];
            load_matrices(a[0], a_at + offset + k * PITCH * 2);
            load_matrices(a[1], a_at + offset + k * PITCH * 2 + 32);
            #pragma unroll
            for (int n = 0; n < 4; ++n) {
                u32 b[4];
                load_matrices(b, b_at + offset + k * PITCH * 2 + 32 * n);
                #pragma unroll
                for (int m = 0; m < 2; ++m) {
                    mma(acc[m][2 * n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
                    mma(acc[m][2 * n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
                }
            }
        }
        buffer ^= 1;
    }
    float* out = products + blockIdx.x * (BANDS * BANDS);
    int g = lane >> 2, c = 2 * (lane & 3);
    #pragma unroll
    for (int m = 0; m < 2; ++m)
        #pragma unroll
        for (int n = 0; n < 8; ++n) {
            float* at = out + (m0 + 16 * m + g) * BANDS + n0 + 8 * n + c;
            *(float2*)at = make_float2(acc[m][n][0], acc[m][n][1]);
            *(float2*)(at + 8 * BANDS) = make_float2(acc[m][n][2], acc[m][n][3]);
        }
    #pragma unroll
    for (int e = 0; e < 8; ++e) atomicAdd(&total[8 * group + e], sum[e]);
    __syncthreads();
    if (tid < BANDS) sums[blockIdx.x * BANDS + tid] = total[tid];
}

// The sums over the blocks: a row of the products in each block, and that band's mean
extern "C" __global__ void __launch_bounds__(512)
collect(const float* __restrict__ products, const float* __restrict__ sums, double* moment, double* mean) {
    __shared__ double part[4][BANDS];
    int r = blockIdx.x, c = threadIdx.x & 127, q = threadIdx.x >> 7;
    double s = 0.0;
    #pragma unroll 11
    for (int b = q; b < GRAM_BLOCKS; b += 4) s += (double)products[b * (BANDS * BANDS) + r * BANDS + c];
    part[q][c] = s;
    if (threadIdx.x < 32) {
        double m = 0.0;
        for (int b = threadIdx.x; b < GRAM_BLOCKS; b += 32) m += (double)sums[b * BANDS + r];
        for (int d = 16; d; d >>= 1) m += __shfl_xor_sync(0xffffffffu, m, d);
        if (threadIdx.x == 0) mean[r] = m / PIXELS;
    }
    __syncthreads();
    if (q == 0) moment[r * BANDS + c] = (part[0][c] + part[1][c] + part[2][c] + part[3][c]) / PIXELS;
}

// The inverse of the covariance's Cholesky factor, by elimination in place: warp w holds the
// rows w + 32 a, lane l the columns l + 32 b. It leaves in two half precision parts, in the
// order in which the scores' kernel takes it.
extern "C" __global__ void __launch_bounds__(1024, 1)
factor(const double* __restrict__ moment, const double* __restrict__ mean, unsigned short* matrix,
       float* center, double gain, double ridge) {
    __shared__ double pivot_row[2][BANDS];
    int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
    double v[4][4];
    #pragma unroll
    for (int a = 0; a < 4; ++a)
        #pragma unroll
        for (int b = 0; b < 4; ++b) {
            int i = w + 32 * a, j = lane + 32 * b;
            v[a][b] = gain * gain * (moment[i * BANDS + j] - mean[i] * mean[j]) + (i == j ? ridge : 0.0);
        }
    #pragma unroll
    for (int ka = 0; ka < 4; ++ka) {
        for (int kk = 0; kk < 32; ++kk) {
            double* row = pivot_row[kk & 1];
            if (w == kk) {
                #pragma unroll
                for (int b = 0; b < 4; ++b) row[lane + 32 * b] = v[ka][b];
            }
            __syncthreads();
            double inverse = 1.0 / row[32 * ka + kk];
            double r[4];
            #pragma unroll
            for (int b = 0; b < 4; ++b) r[b] = row[lane + 32 * b];
            #pragma unroll
            for (int a = ka; a < 4; ++a) {
                if (a > ka || w > kk) {
                    double l = __shfl_sync(0xffffffffu, v[a][ka], kk) * inverse;
                    #pragma unroll
                    for (int b = 0; b < 4; ++b) v[a][b] -= l * r[b];
                    if (lane == kk) v[a][ka] = -l;
                }
            }
        }
    }
    #pragma unroll
    for (int a = 0; a < 4; ++a) {
        int i = w + 32 * a;
        double scale = 1.0 / sqrt(__shfl_sync(0xffffffffu, v[a][a], w));
        double dot = 0.0;
        #pragma unroll
        for (int b = 0; b < 4; ++b) {
            int j = lane + 32 * b;
            double x = j < i ? v[a][b] * scale : (j == i ? scale : 0.0);
            dot += x * mean[j];
            float f = (float)(16.0 * x), back;
            unsigned short hi, lo;
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(hi) : "f"(f));
            asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(hi));
            float rest = (float)(16.0 * x - (double)back);
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(lo) : "f"(rest));
            int at = (((i >> 3) * 4 + (j >> 5)) * 32 + (i & 7) * 4 + ((j & 31) >> 3)) * 8 + (j & 7);
            matrix[at] = hi;
            matrix[at + BANDS * BANDS] = lo;
        }
        for (int d = 16; d; d >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, d);
        if (lane == 0) center[i] = (float)(gain * dot);
    }
}

// The scores, and what the block adds to the totals. A warp takes 32 pixels.
extern "C" __global__ void __launch_bounds__(256, 2)
score(const uint4* __restrict__ counts, const float* __restrict__ shift, const uint4* __restrict__ matrix,
      const float* __restrict__ center, float* scores, double* parts, u32* ticket, double* totals,
      float gain, float threshold) {
    extern __shared__ uint4 factors[];   // [2][16][4][32]
    __shared__ __align__(16) float mid[BANDS];
    __shared__ __align__(16) float middle[BANDS];
    __shared__ double warp_part[8][3];
    __shared__ bool last;
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
    for (int j = tid; j < 4096; j += 256) factors[j] = matrix[j];
    if (tid < BANDS) { mid[tid] = shift[tid]; middle[tid] = center[tid]; }
    __syncthreads();
    float unit = gain / 16.0f;
    double sum = 0.0;
    float top = -1.0f;
    int alarms = 0;
    for (int unit32 = blockIdx.x * 8 + warp; unit32 < PIXELS / 32; unit32 += gridDim.x * 8) {
        int first = unit32 * 32;
        uint4 raw[4][4];   // [rows g + 8 m][bands 32 s + 8 t ...]
        #pragma unroll
        for (int m = 0; m < 4; ++m)
            #pragma unroll
            for (int s = 0; s < 4; ++s)
                raw[m][s] = __ldg(&counts[(first + g + 8 * m) * 16 + 4 * s + t]);
        #pragma unroll
        for (int s = 0; s < 4; ++s) {
            float4 p = *(const float4*)&mid[32 * s + 8 * t], q = *(const float4*)&mid[32 * s + 8 * t + 4];
            #pragma unroll
            for (int m = 0; m < 4; ++m) {
                uint4 v = raw[m][s];
                raw[m][s].x = pack(low(v.x) - p.x, high(v.x) - p.y);
                raw[m][s].y = pack(low(v.y) - p.z, high(v.y) - p.w);
                raw[m][s].z = pack(low(v.z) - q.x, high(v.z) - q.y);
                raw[m][s].w = pack(low(v.w) - q.z, high(v.w) - q.w);
            }
        }
        float result[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        #pragma unroll
        for (int n4 = 0; n4 < 4; ++n4) {
            #pragma unroll 2
            for (int n1 = 0; n1 < 4; ++n1) {
                int n = 4 * n4 + n1;
                float main_part[2][4], rest[2][4];
                #pragma unroll
                for (int m = 0; m < 2; ++m)
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) { main_part[m][e] = 0.0f; rest[m][e] = 0.0f; }
                #pragma unroll
                for (int s = 0; s <= n4; ++s) {   // beyond: above the diagonal, zero
                    uint4 hi = factors[(n * 4 + s) * 32 + lane];
                    uint4 lo = factors[2048 + (n * 4 + s) * 32 + lane];
                    #pragma unroll
                    for (int m = 0; m < 2; ++m) {
                        uint4 a = raw[2 * m][s], b = raw[2 * m + 1][s];
                        mma(main_part[m], a.x, b.x, a.y, b.y, hi.x, hi.y);
                        mma(rest[m], a.x, b.x, a.y, b.y, lo.x, lo.y);
                        mma(main_part[m], a.z, b.z, a.w, b.w, hi.z, hi.w);
                        mma(rest[m], a.z, b.z, a.w, b.w, lo.z, lo.w);
                    }
                }
                float2 c = *(const float2*)&middle[8 * n + 2 * t];
                #pragma unroll
                for (int m = 0; m < 2; ++m) {
                    float y0 = (main_part[m][0] + rest[m][0]) * unit - c.x;
                    float y1 = (main_part[m][1] + rest[m][1]) * unit - c.y;
                    float y2 = (main_part[m][2] + rest[m][2]) * unit - c.x;
                    float y3 = (main_part[m][3] + rest[m][3]) * unit - c.y;
                    result[2 * m] += y0 * y0 + y1 * y1;
                    result[2 * m + 1] += y2 * y2 + y3 * y3;
                }
            }
        }
        #pragma unroll
        for (int m = 0; m < 4; ++m) {
            result[m] += __shfl_xor_sync(0xffffffffu, result[m], 1);
            result[m] += __shfl_xor_sync(0xffffffffu, result[m], 2);
        }
        // lane t of a row's four takes the row g + 8 t
        float mine = t == 0 ? result[0] : t == 1 ? result[1] : t == 2 ? result[2] : result[3];
        scores[first + g + 8 * t] = mine;
        alarms += mine > threshold;
        sum += mine;
        top = fmaxf(top, mine);
    }
    for (int d = 16; d; d >>= 1) {
        alarms += __shfl_xor_sync(0xffffffffu, alarms, d);
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    }
    if (lane == 0) { warp_part[warp][0] = alarms; warp_part[warp][1] = sum; warp_part[warp][2] = top; }
    __syncthreads();
    if (tid == 0) {
        double n = 0.0, s = 0.0, h = -1.0;
        for (int j = 0; j < 8; ++j) { n += warp_part[j][0]; s += warp_part[j][1]; h = fmax(h, warp_part[j][2]); }
        parts[blockIdx.x * 3] = n; parts[blockIdx.x * 3 + 1] = s; parts[blockIdx.x * 3 + 2] = h;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && warp == 0) {
        __threadfence();
        double n = 0.0, s = 0.0, h = -1.0;
        for (int j = lane; j < gridDim.x; j += 32) {
            n += __ldcg(&parts[j * 3]); s += __ldcg(&parts[j * 3 + 1]); h = fmax(h, __ldcg(&parts[j * 3 + 2]));
        }
        for (int d = 16; d; d >>= 1) {
            n += __shfl_xor_sync(0xffffffffu, n, d);
            s += __shfl_xor_sync(0xffffffffu, s, d);
            h = fmax(h, __shfl_xor_sync(0xffffffffu, h, d));
        }
        if (lane == 0) {
            totals[0] += n;
            totals[1] += s / PIXELS;
            totals[2] += h;
            *ticket = 0;
        }
    }
}
"""

GRAM_BLOCKS = 264  # as in the source
SCORE_BLOCKS = 264
SCORE_SHARED = 2 * BANDS * BANDS * 2


class Detector:
    """Kernels and buffers for one block of scan lines at a time."""

    def __init__(self):
        module = cp.RawModule(code=SOURCE)
        self.gram = module.get_function("gram")
        self.collect = module.get_function("collect")
        self.factor = module.get_function("factor")
        self.score = module.get_function("score")
        self.score.max_dynamic_shared_size_bytes = SCORE_SHARED
        self.shift = cp.empty(BANDS, dtype=cp.float32)
        self.products = cp.empty((GRAM_BLOCKS, BANDS, BANDS), dtype=cp.float32)
        self.sums = cp.empty((GRAM_BLOCKS, BANDS), dtype=cp.float32)
        self.moment = cp.empty((BANDS, BANDS), dtype=cp.float64)
        self.mean = cp.empty(BANDS, dtype=cp.float64)
        self.matrix = cp.empty((2, BANDS, BANDS), dtype=cp.float16)
        self.center = cp.empty(BANDS, dtype=cp.float32)
        self.scores = cp.empty(PIXELS, dtype=cp.float32)
        self.parts = cp.empty((SCORE_BLOCKS, 3), dtype=cp.float64)
        self.ticket = cp.zeros(1, dtype=cp.uint32)
        self.scalars = np.float64(GAIN), np.float64(RIDGE)
        self.limits = np.float32(GAIN), np.float32(THRESHOLD)

    def process_block(self, counts, totals):
        """Squared Mahalanobis distance of every pixel from its block's background.

        The offset of the sensor cancels: only differences from the mean matter.
        """
        self.gram((GRAM_BLOCKS,), (256,), (counts, self.shift, self.products, self.sums))
        self.collect((BANDS,), (512,), (self.products, self.sums, self.moment, self.mean))
        self.factor(
            (1,), (1024,), (self.moment, self.mean, self.matrix, self.center, *self.scalars)
        )
        self.score(
            (SCORE_BLOCKS,),
            (256,),
            (
                counts,
                self.shift,
                self.matrix,
                self.center,
                self.scores,
                self.parts,
                self.ticket,
                totals,
                *self.limits,
            ),
            shared_mem=SCORE_SHARED,
        )


def main():
    rng = cp.random.default_rng(11)
    scene = simulate_scene(rng)
    detector = Detector()
    totals = cp.zeros(3, dtype=cp.float64)
    cp.get_default_memory_pool().free_all_blocks()

    done = 0
    times = []

    def step():
        nonlocal done
        detector.process_block(scene[done % len(scene)], totals)
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
