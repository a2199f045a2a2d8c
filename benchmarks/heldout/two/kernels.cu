// Held-out kernels, second set: mNN_a has a planted cause (or sits at a roof), mNN_b computes the same without it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>
using namespace nvcuda;
#define K extern "C" __global__
#define R __restrict__

__constant__ float c_window[128];
__constant__ float c_amp[64];
__constant__ uint32_t c_crc[256];

__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

// ---- 01: sums by key in an open-addressing hash table (2^18 slots of key+1 and sum); half of the keys are one key
__device__ __forceinline__ void insert(uint32_t* table, uint32_t key, float v) {
    uint32_t slot = (key * 2654435761u) >> 14, have;
    for (;;) {
        have = table[2 * slot];
        if (have == 0) have = atomicCAS(table + 2 * slot, 0u, key + 1);
        if (have == 0 || have == key + 1) break;
        slot = (slot + 1) & ((1u << 18) - 1);
    }
    atomicAdd(reinterpret_cast<float*>(table) + 2 * slot + 1, v);
}
K void __launch_bounds__(256) m01_a(const uint32_t* R keys, const float* R w, uint32_t* table, uint32_t hot) {
    for (int k = 0; k < 8; ++k) {
        int i = blockIdx.x * 2048 + k * 256 + threadIdx.x;
        insert(table, keys[i], w[i]);
    }
}
K void __launch_bounds__(256) m01_b(const uint32_t* R keys, const float* R w, uint32_t* table, uint32_t hot) {
    __shared__ float part[8];
    float mine = 0.f;
    for (int k = 0; k < 8; ++k) {
        int i = blockIdx.x * 2048 + k * 256 + threadIdx.x;
        uint32_t key = keys[i];
        if (key == hot) mine += w[i];
        else insert(table, key, w[i]);
    }
    mine = warp_sum(mine);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; ++k) mine += part[k];
        insert(table, hot, mine);
    }
}

// ---- 02: k-means assignment, 16 dimensions, 256 centroids
K void __launch_bounds__(256) m02_a(const float* R x, const float* R cent, int* R label, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float p[16], best = 1e30f;
    int at = 0;
#pragma unroll
    for (int d = 0; d < 16; ++d) p[d] = x[d * n + i];
#pragma unroll 2
    for (int c = 0; c < 256; ++c) {
        float s = 0.f;
#pragma unroll
        for (int d = 0; d < 16; ++d) {
            float v = p[d] - cent[c * 16 + d];
            s = __fmaf_rn(v, v, s);
        }
        if (s < best) best = s, at = c;
    }
    label[i] = at;
}
K void __launch_bounds__(256) m02_b(const float* R x, const float4* R cent, int* R label, int n) {
    __shared__ float4 tab[1024];
    for (int k = threadIdx.x; k < 1024; k += 256) tab[k] = cent[k];
    int i = blockIdx.x * 256 + threadIdx.x, j = i + n / 2;
    float p[16], q[16], best = 1e30f, best2 = 1e30f;
    int at = 0, at2 = 0;
#pragma unroll
    for (int d = 0; d < 16; ++d) p[d] = x[d * n + i], q[d] = x[d * n + j];
    __syncthreads();
#pragma unroll 2
    for (int c = 0; c < 256; ++c) {
        float s = 0.f, s2 = 0.f;
#pragma unroll
        for (int d = 0; d < 4; ++d) {
            float4 m = tab[c * 4 + d];
            float w[4] = {m.x, m.y, m.z, m.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float v = p[4 * d + e] - w[e], v2 = q[4 * d + e] - w[e];
                s = __fmaf_rn(v, v, s);
                s2 = __fmaf_rn(v2, v2, s2);
            }
        }
        if (s < best) best = s, at = c;
        if (s2 < best2) best2 = s2, at2 = c;
    }
    label[i] = at;
    label[j] = at2;
}

// ---- 03: digit counts of a radix sort, 16384 keys a block, counters of each thread in shared memory
template <bool BY_THREAD> __device__ __forceinline__ void digits(const uint4* R keys, uint32_t* R counts, int shift) {
    __shared__ uint32_t count[4096];
    int t = threadIdx.x;
    for (int d = 0; d < 16; ++d) count[d * 256 + t] = 0;
    __syncthreads();
    for (int k = 0; k < 16; ++k) {
        uint4 v = keys[(size_t)blockIdx.x * 4096 + k * 256 + t];
        uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            uint32_t d = (w[e] >> shift) & 15;
            ++count[BY_THREAD ? t * 16 + d : d * 256 + t];
        }
    }
    __syncthreads();
    for (int d = t >> 5; d < 16; d += 8) {
        uint32_t s = 0;
        for (int k = t & 31; k < 256; k += 32) s += count[BY_THREAD ? k * 16 + d : d * 256 + k];
        s = __reduce_add_sync(~0u, s);
        if ((t & 31) == 0) counts[blockIdx.x * 16 + d] = s;
    }
}
K void __launch_bounds__(256) m03_a(const uint4* R keys, uint32_t* R counts, int shift) { digits<true>(keys, counts, shift); }
K void __launch_bounds__(256) m03_b(const uint4* R keys, uint32_t* R counts, int shift) { digits<false>(keys, counts, shift); }

// ---- 04: bit-reversed order of 2^24 complex numbers, scaled
K void __launch_bounds__(256) m04_a(const float2* R x, float2* R y, float s) {
    uint32_t i = blockIdx.x * 256 + threadIdx.x;
    float2 v = x[i];
    y[__brev(i) >> 8] = make_float2(v.x * s, v.y * s);
}
K void __launch_bounds__(256) m04_b(const float2* R x, float2* R y, float s) {
    __shared__ float2 tile[32][33];
    uint32_t mid = blockIdx.x, tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
#pragma unroll
    for (uint32_t hi = ty; hi < 32; hi += 8) {
        float2 v = x[hi << 19 | mid << 5 | tx];
        tile[__brev(hi) >> 27][tx] = make_float2(v.x * s, v.y * s);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t lo = ty; lo < 32; lo += 8) y[(__brev(lo) >> 27) << 19 | (__brev(mid) >> 18) << 5 | tx] = tile[tx][lo];
}

// ---- 05: y = A' x
K void __launch_bounds__(256) m05_a(const float* R a, const float* R x, float* R y, int rows, int cols) {
    int c = blockIdx.x * 256 + threadIdx.x;
    float s = 0.f;
#pragma unroll 8
    for (int r = 0; r < rows; ++r) s = fmaf(a[(size_t)r * cols + c], x[r], s);
    y[c] = s;
}
K void __launch_bounds__(256) m05_b(const float* R a, const float* R x, float* R y, int rows, int cols) {
    int c = blockIdx.x * 256 + threadIdx.x, part = rows / gridDim.y, from = blockIdx.y * part;
    float s = 0.f;
#pragma unroll 8
    for (int r = from; r < from + part; ++r) s = fmaf(a[(size_t)r * cols + c], x[r], s);
    atomicAdd(y + c, s);
}

// ---- 06: CSR product, a warp for each piece of a row
template <bool ADD> __device__ __forceinline__ void csr(const int* R start, const int* R end, const int* R row, const int* R col, const float* R val, const float* R x,
                                                        float* R y, int count) {
    int w = (blockIdx.x * 256 + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (w >= count) return;
    float s = 0.f;
    int to = end[w];
#pragma unroll 4
    for (int k = start[w] + lane; k < to; k += 32) s = fmaf(val[k], x[col[k]], s);
    s = warp_sum(s);
    if (lane) return;
    if (ADD) atomicAdd(y + row[w], s);
    else y[row[w]] = s;
}
K void __launch_bounds__(256) m06_a(const int* R start, const int* R end, const int* R row, const int* R col, const float* R val, const float* R x, float* R y, int count) {
    csr<false>(start, end, row, col, val, x, y, count);
}
K void __launch_bounds__(256) m06_b(const int* R start, const int* R end, const int* R row, const int* R col, const float* R val, const float* R x, float* R y, int count) {
    csr<true>(start, end, row, col, val, x, y, count);
}

// ---- 07: sum over all j <= i of (x_i - x_j)^4: a triangle of work
__device__ __forceinline__ void quartic(float xi, float xj, float& s) {
    float d = xi - xj, q = d * d;
    s = fmaf(q, q, s);
}
K void __launch_bounds__(512) m07_a(const float* R x, float* R y) {
    __shared__ float tile[512];
    int t = threadIdx.x, b = blockIdx.x;
    float xi = x[b * 512 + t], s = 0.f;
    for (int j = 0; j <= b; ++j) {
        tile[t] = x[j * 512 + t];
        __syncthreads();
        if (j < b) {
#pragma unroll 32
            for (int k = 0; k < 512; ++k) quartic(xi, tile[k], s);
        } else {
#pragma unroll 1
            for (int k = 0; k <= t; ++k) quartic(xi, tile[k], s);
        }
        __syncthreads();
    }
    y[b * 512 + t] = s;
}
K void __launch_bounds__(512) m07_b(const float* R x, float* R y) {
    __shared__ float tile[512], other[256];
    int t = threadIdx.x, half = t >> 8, from = half * 256;
    for (int turn = 0; turn < 2; ++turn) {
        int p = turn ? 2 * (int)gridDim.x - 1 - (int)blockIdx.x : (int)blockIdx.x, i = p * 256 + (t & 255);
        float xi = x[i], s = 0.f;
        for (int j = 0; j < p * 256 + 256; j += 512) {
            tile[t] = x[j + t];
            __syncthreads();
            int to = i + 1 - j;
            if (to >= from + 256) {
#pragma unroll 32
                for (int k = 0; k < 256; ++k) quartic(xi, tile[from + k], s);
            } else {
#pragma unroll 1
                for (int k = from; k < to; ++k) quartic(xi, tile[k], s);
            }
            __syncthreads();
        }
        if (half) other[t & 255] = s;
        __syncthreads();
        if (!half) y[i] = s + other[t];
        __syncthreads();
    }
}

// ---- 08: eight materials, a formula for each; `order` says which element a thread takes
__device__ __forceinline__ float shade(int kind, float v) {
    float u = v;
    switch (kind) {
    case 0:
#pragma unroll 4
        for (int r = 0; r < 48; ++r) u = fmaf(u, 0.75f, v * u * 0.1f);
        break;
    case 1:
#pragma unroll 4
        for (int r = 0; r < 48; ++r) u = fmaf(u * u, -0.5f, v + 0.25f);
        break;
    case 2:
#pragma unroll 4
        for (int r = 0; r < 48; ++r) u = fminf(u * 1.01f + 0.02f, v + 0.5f);
        break;
    case 3:
#pragma unroll 4
        for (int r = 0; r < 48; ++r) u = fmaxf(u * 0.98f - 0.01f, -v);
        break;
    case 4:
#pragma unroll 4
        for (int r = 0; r < 48; ++r) u = fabsf(fmaf(u, 0.9f, -0.3f)) + 0.1f * v;
        break;
    case 5:
#pragma unroll 4
        for (int r = 0; r < 48; ++r) u = fmaf(v - u, 0.3f, u * 0.5f);
        break;
    case 6:
#pragma unroll 4
        for (int r = 0; r < 48; ++r) u = fmaf(u, u * -0.25f, 0.5f) + v * 0.125f;
        break;
    default:
#pragma unroll 4
        for (int r = 0; r < 48; ++r) u = (u > 0.4f ? u * 0.5f : u + v) + 0.05f;
    }
    return u;
}
K void __launch_bounds__(256) m08_a(const float* R x, const int* R kind, const int* R order, float* R y) {
    for (int k = 0; k < 8; ++k) {
        int i = order[blockIdx.x * 2048 + k * 256 + threadIdx.x];
        y[i] = shade(kind[i], x[i]);
    }
}
K void __launch_bounds__(256) m08_b(const float* R x, const int* R kind, const int* R order, float* R y) {
    for (int k = 0; k < 8; ++k) {
        int i = order[blockIdx.x * 2048 + k * 256 + threadIdx.x];
        y[i] = shade(kind[i], x[i]);
    }
}

// ---- 09: windowed signal; the 256 weights of a tile go through shared memory
__device__ __forceinline__ float window(float u) {
    float s = 0.f;
#pragma unroll 16
    for (int k = 0; k < 128; ++k) s = fmaf(s, u, c_window[k]);
    return s;
}
template <bool ALL> __device__ __forceinline__ void windowed(const float* R x, float* R y, int tiles) {
    __shared__ float w[256];
    int t = threadIdx.x;
    float scale = 1.f / (tiles * 256);
    for (int tile = 0; tile < tiles; ++tile) {
        size_t g = ((size_t)blockIdx.x * tiles + tile) * 256 + t;
        float v = x[g];
        if (ALL) w[t] = window((tile * 256 + t) * scale);
        else if (t < 32) {
#pragma unroll 1
            for (int k = t; k < 256; k += 32) w[k] = window((tile * 256 + k) * scale);
        }
        __syncthreads();
        y[g] = v * (w[t] + 0.5f * w[(t + 1) & 255]);
        __syncthreads();
    }
}
K void __launch_bounds__(256) m09_a(const float* R x, float* R y, int tiles) { windowed<false>(x, y, tiles); }
K void __launch_bounds__(256) m09_b(const float* R x, float* R y, int tiles) { windowed<true>(x, y, tiles); }

// ---- 10, 17, 26: matrix products; 128 x 128 by 256 threads, 8 x 8 a thread, single precision arithmetic
__device__ __forceinline__ float4 four(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ __forceinline__ float4 four(const __nv_bfloat16* p) {
    uint2 u = *reinterpret_cast<const uint2*>(p);
    return make_float4(__uint_as_float(u.x << 16), __uint_as_float(u.x & 0xffff0000u), __uint_as_float(u.y << 16), __uint_as_float(u.y & 0xffff0000u));
}
template <typename T> __device__ __forceinline__ void gemm128(const T* R a, const T* R b, float* R c, int n) {
    __shared__ __align__(16) float as[8][132], bs[8][128];
    int t = threadIdx.x, tx = t & 15, ty = t >> 4;
    const T* pa = a + (size_t)(blockIdx.y * 128 + (t >> 1)) * n + (t & 1) * 4;
    const T* pb = b + (size_t)(t >> 5) * n + blockIdx.x * 128 + (t & 31) * 4;
    float acc[8][8] = {};
    float4 ra = four(pa), rb = four(pb);
#pragma unroll 1
    for (int k0 = 0; k0 < n; k0 += 8) {
        int q = (t & 1) * 4;
        as[q][t >> 1] = ra.x, as[q + 1][t >> 1] = ra.y, as[q + 2][t >> 1] = ra.z, as[q + 3][t >> 1] = ra.w;
        *reinterpret_cast<float4*>(&bs[t >> 5][(t & 31) * 4]) = rb;
        __syncthreads();
        if (k0 + 8 < n) ra = four(pa + k0 + 8), rb = four(pb + (size_t)(k0 + 8) * n);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            float4 a0 = four(&as[k][ty * 4]), a1 = four(&as[k][64 + ty * 4]), b0 = four(&bs[k][tx * 4]), b1 = four(&bs[k][64 + tx * 4]);
            float u[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w}, v[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(u[i], v[j], acc[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        size_t row = blockIdx.y * 128 + (i < 4 ? ty * 4 + i : 60 + ty * 4 + i);
        float* p = c + row * n + blockIdx.x * 128 + tx * 4;
        *reinterpret_cast<float4*>(p) = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
        *reinterpret_cast<float4*>(p + 64) = make_float4(acc[i][4], acc[i][5], acc[i][6], acc[i][7]);
    }
}
K void __launch_bounds__(256, 4) m10_a(const float* R a, const float* R b, float* R c, int n) { gemm128(a, b, c, n); }
K void __launch_bounds__(256, 2) m10_b(const float* R a, const float* R b, float* R c, int n) { gemm128(a, b, c, n); }

// ---- 11: transposition
template <int PITCH> __device__ __forceinline__ void transpose(const float* R x, float* R y, int n) {
    __shared__ float tile[32 * PITCH];
    int tx = threadIdx.x, ty = threadIdx.y, c = blockIdx.x * 32, r = blockIdx.y * 32;
#pragma unroll
    for (int k = ty; k < 32; k += 8) tile[k * PITCH + tx] = x[(size_t)(r + k) * n + c + tx];
    __syncthreads();
#pragma unroll
    for (int k = ty; k < 32; k += 8) y[(size_t)(c + k) * n + r + tx] = tile[tx * PITCH + k];
}
K void __launch_bounds__(256) m11_a(const float* R x, float* R y, int n) { transpose<32>(x, y, n); }
K void __launch_bounds__(256) m11_b(const float* R x, float* R y, int n) { transpose<33>(x, y, n); }

// ---- 12: threshold of an 8-bit image
K void __launch_bounds__(256) m12_a(const uint8_t* R x, uint8_t* R y, uint32_t cut) {
    size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
    y[i] = x[i] > cut ? 255 : 0;
}
K void __launch_bounds__(256) m12_b(const uint4* R x, uint4* R y, uint32_t cut) {
    size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
    uint32_t c4 = cut * 0x01010101u;
    uint4 v = x[i];
    y[i] = make_uint4(__vcmpgtu4(v.x, c4), __vcmpgtu4(v.y, c4), __vcmpgtu4(v.z, c4), __vcmpgtu4(v.w, c4));
}

// ---- 13: energy of a particle with its next 32
K void __launch_bounds__(256) m13_a(const float4* R p, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float4 a = p[i];
    double e = 0.0;
#pragma unroll 4
    for (int k = 1; k <= 32; ++k) {
        float4 b = p[i + k];
        float dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z, r2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.3f)));
        double inv = 1.0 / r2, s6 = inv * inv * inv, c = r2 * 0.02;
        e += 4.0 * (s6 * s6 - s6) * (1.0 - c * c * (3.0 - 2.0 * c)) + 0.1 * inv;
    }
    y[i] = e;
}
K void __launch_bounds__(256) m13_b(const float4* R p, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float4 a = p[i];
    float e = 0.0f;
#pragma unroll 4
    for (int k = 1; k <= 32; ++k) {
        float4 b = p[i + k];
        float dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z, r2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.3f)));
        float inv = 1.0f / r2, s6 = inv * inv * inv, c = r2 * 0.02f;
        e += 4.0f * (s6 * s6 - s6) * (1.0f - c * c * (3.0f - 2.0f * c)) + 0.1f * inv;
    }
    y[i] = e;
}

// ---- 14: (n, h, w, c) -> (n, w, h, c)
K void __launch_bounds__(256) m14_a(const float* R x, float* R y, long long h, long long w, long long c) {
    long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    long long ic = i % c, iw = i / c % w, ih = i / (c * w) % h, in = i / (c * w * h);
    y[((in * w + iw) * h + ih) * c + ic] = x[i];
}
K void __launch_bounds__(256) m14_b(const float* R x, float* R y, long long h, long long w, long long c) {
    int ic = threadIdx.x, ih = blockIdx.x * 4 + threadIdx.y, iw = blockIdx.y, in = blockIdx.z;
    y[((in * (int)w + iw) * (int)h + ih) * (int)c + ic] = x[((in * (int)h + ih) * (int)w + iw) * (int)c + ic];
}

// ---- 15: CRC-32 of 64 bytes a thread, words interleaved
K void __launch_bounds__(256) m15_a(const uint32_t* R x, const uint32_t* R table, uint32_t* R y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    uint32_t crc = ~0u;
#pragma unroll 4
    for (int k = 0; k < 16; ++k) {
        uint32_t v = x[k * n + i];
#pragma unroll
        for (int e = 0; e < 4; ++e) crc = c_crc[(crc ^ (v >> (8 * e))) & 255] ^ (crc >> 8);
    }
    y[i] = ~crc;
}
K void __launch_bounds__(256) m15_b(const uint32_t* R x, const uint32_t* R table, uint32_t* R y, int n) {
    __shared__ uint32_t tab[256];
    tab[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * 256 + threadIdx.x;
    uint32_t crc = ~0u;
#pragma unroll 4
    for (int k = 0; k < 16; ++k) {
        uint32_t v = x[k * n + i];
#pragma unroll
        for (int e = 0; e < 4; ++e) crc = tab[(crc ^ (v >> (8 * e))) & 255] ^ (crc >> 8);
    }
    y[i] = ~crc;
}

// ---- 16: 64 harmonics
K void __launch_bounds__(256) m16_a(const float* R x, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = x[i], s = c_amp[0];
#pragma unroll
    for (int j = 1; j < 64; ++j) s = fmaf(c_amp[j], __cosf(j * v), s);
    y[i] = s;
}
K void __launch_bounds__(256) m16_b(const float* R x, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float now = __cosf(x[i]), twice = 2.f * now, before = 1.f, s = c_amp[0];
#pragma unroll
    for (int j = 1; j < 64; ++j) {
        s = fmaf(c_amp[j], now, s);
        float next = fmaf(twice, now, -before);
        before = now;
        now = next;
    }
    y[i] = s;
}

// ---- 17: bf16 matrix product
K void __launch_bounds__(256, 2) m17_a(const __nv_bfloat16* R a, const __nv_bfloat16* R b, float* R c, int n) { gemm128(a, b, c, n); }
K void __launch_bounds__(256, 2) m17_b(const __nv_bfloat16* R a, const __nv_bfloat16* R b, float* R c, int n) {
    __shared__ __align__(32) __nv_bfloat16 as[128][40], bs[32][136];
    int t = threadIdx.x, wm = t >> 7, wn = (t >> 5) & 3;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4][2];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(acc[i][j], 0.f);
    uint4 ra[2], rb[2];
    auto fetch = [&](int k0) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            int e = t + 256 * j;
            ra[j] = *reinterpret_cast<const uint4*>(a + (size_t)(blockIdx.y * 128 + e / 4) * n + k0 + e % 4 * 8);
            rb[j] = *reinterpret_cast<const uint4*>(b + (size_t)(k0 + e / 16) * n + blockIdx.x * 128 + e % 16 * 8);
        }
    };
    fetch(0);
    for (int k0 = 0; k0 < n; k0 += 32) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            int e = t + 256 * j;
            *reinterpret_cast<uint4*>(&as[e / 4][e % 4 * 8]) = ra[j];
            *reinterpret_cast<uint4*>(&bs[e / 16][e % 16 * 8]) = rb[j];
        }
        __syncthreads();
        if (k0 + 32 < n) fetch(k0 + 32);
#pragma unroll
        for (int k = 0; k < 32; k += 16) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> fb[2];
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(fb[j], &bs[k][wn * 32 + j * 16], 136);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa;
                wmma::load_matrix_sync(fa, &as[wm * 64 + i * 16][k], 40);
                for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], fa, fb[j], acc[i][j]);
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(c + (size_t)(blockIdx.y * 128 + wm * 64 + i * 16) * n + blockIdx.x * 128 + wn * 32 + j * 16, acc[i][j], n, wmma::mem_row_major);
}

// ---- 18: gather through a list of indices (whole lines of 128 bytes in another order)
K void __launch_bounds__(256) m18_a(const int* idx, const float* x, float* y, int n) {
    int step = gridDim.x * 256;
#pragma unroll 8
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += step) y[i] = x[idx[i]] * 0.5f;
}
K void __launch_bounds__(256) m18_b(const int* R idx, const float* R x, float* R y, int n) {
    int step = gridDim.x * 256, i = blockIdx.x * 256 + threadIdx.x;
    for (; i + 7 * step < n; i += 8 * step) {
        int p[8];
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) p[k] = idx[i + k * step];
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = x[p[k]];
#pragma unroll
        for (int k = 0; k < 8; ++k) y[i + k * step] = v[k] * 0.5f;
    }
    for (; i < n; i += step) y[i] = x[idx[i]] * 0.5f;
}

// ---- 19: sums of squares by bulk copies of 16 KiB into a ring of eight buffers
__device__ __forceinline__ uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
template <int AHEAD> __device__ __forceinline__ void bulk(const float* R x, float* R y, int tiles) {
    extern __shared__ __align__(128) float ring[];
    __shared__ __align__(8) uint64_t bar[8];
    int t = threadIdx.x, count = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    if (t == 0) {
        for (int k = 0; k < 8; ++k) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem(bar + k)) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    auto issue = [&](int k) {
        if (t == 0) {
            uint32_t b = smem(bar + (k & 7)), to = smem(ring + (k & 7) * 4096);
            const float* from = x + ((size_t)blockIdx.x + (size_t)k * gridDim.x) * 4096;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16384;" ::"r"(b) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16384, [%2];" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(b)
                         : "memory");
        }
    };
    for (int k = 0; k < AHEAD && k < count; ++k) issue(k);
    for (int k = 0; k < count; ++k) {
        if (k + AHEAD < count) issue(k + AHEAD);
        uint32_t b = smem(bar + (k & 7)), parity = (k >> 3) & 1, done = 0;
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(b), "r"(parity) : "memory");
        const float4* tile = reinterpret_cast<const float4*>(ring + (k & 7) * 4096);
        float s = 0.f;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            float4 v = tile[j * 128 + t];
            s = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, s))));
        }
        y[((size_t)blockIdx.x + (size_t)k * gridDim.x) * 128 + t] = s;
        __syncthreads();
    }
}
K void __launch_bounds__(128) m19_a(const float* R x, float* R y, int tiles) { bulk<0>(x, y, tiles); }
K void __launch_bounds__(128) m19_b(const float* R x, float* R y, int tiles) { bulk<6>(x, y, tiles); }

// ---- 20: eight logistic maps a thread
K void __launch_bounds__(128) m20_a(const float* R x, float* R y, int steps) {
    int n = gridDim.x * 128, i = blockIdx.x * 128 + threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < 8; ++k) {
        float v = x[k * n + i];
#pragma unroll 16
        for (int s = 0; s < steps; ++s) {
            float u = __fmul_rn(3.9f, v);
            v = __fmaf_rn(-u, v, u);
        }
        y[k * n + i] = v;
    }
}
K void __launch_bounds__(128) m20_b(const float* R x, float* R y, int steps) {
    int n = gridDim.x * 128, i = blockIdx.x * 128 + threadIdx.x;
    float v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = x[k * n + i];
#pragma unroll 4
    for (int s = 0; s < steps; ++s)
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            float u = __fmul_rn(3.9f, v[k]);
            v[k] = __fmaf_rn(-u, v[k], u);
        }
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k * n + i] = v[k];
}

// ---- 21: an interpreter with sixteen long instructions, each warp at another one
template <int C, bool LONG> __device__ __forceinline__ void stage(float& u, float& v, float p, float q) {
    if (LONG) {
#pragma unroll
        for (int k = 0; k < 768; ++k) {
            u = fmaf(u, 0.5f + 0.015f * C + 0.003f * (k & 15), p);
            v = fmaf(v, 0.4f + 0.015f * C + 0.003f * (k & 15), q);
        }
    } else {
#pragma unroll 1
        for (int o = 0; o < 48; ++o)
#pragma unroll
            for (int k = 0; k < 16; ++k) {
                u = fmaf(u, 0.5f + 0.015f * C + 0.003f * (k & 15), p);
                v = fmaf(v, 0.4f + 0.015f * C + 0.003f * (k & 15), q);
            }
    }
}
template <bool LONG> __device__ __forceinline__ void interpret(const float* R x, float* R y, int n, int rounds) {
    int i = blockIdx.x * 256 + threadIdx.x, warp = i >> 5;
    float u = x[i], v = x[i + n], p = 0.01f * u, q = 0.01f * v;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
        switch ((warp * 7 + r * 5) & 15) {
#define CASE(c) case c: stage<c, LONG>(u, v, p, q); break;
        CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14) CASE(15)
        }
    }
    y[i] = u;
    y[i + n] = v;
}
K void __launch_bounds__(256) m21_a(const float* R x, float* R y, int n, int rounds) { interpret<true>(x, y, n, rounds); }
K void __launch_bounds__(256) m21_b(const float* R x, float* R y, int n, int rounds) { interpret<false>(x, y, n, rounds); }

// ---- 22: three-point smoothing of pieces of 256
__device__ __forceinline__ void smooth(const float4* R x, float4* R y) {
    extern __shared__ __align__(128) float ring[];
    int t = threadIdx.x;
    size_t i = (size_t)blockIdx.x * 64 + t;
    float4 v = x[i];
    reinterpret_cast<float4*>(ring)[t] = v;
    __syncthreads();
    float l = ring[max(4 * t - 1, 0)], r = ring[min(4 * t + 4, 255)];
    y[i] = make_float4(0.25f * (l + v.y) + 0.5f * v.x, 0.25f * (v.x + v.z) + 0.5f * v.y, 0.25f * (v.y + v.w) + 0.5f * v.z, 0.25f * (v.z + r) + 0.5f * v.w);
}
K void __launch_bounds__(64) m22_a(const float4* R x, float4* R y) { smooth(x, y); }
K void __launch_bounds__(64) m22_b(const float4* R x, float4* R y) { smooth(x, y); }

// ---- 23: field of 8192 sources at 163840 points
__device__ __forceinline__ void pull(float4 p, float4 s, float& ax, float& ay, float& az) {
    float dx = s.x - p.x, dy = s.y - p.y, dz = s.z - p.z, inv = rsqrtf(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f)))), f = s.w * inv * inv * inv;
    ax = fmaf(f, dx, ax);
    ay = fmaf(f, dy, ay);
    az = fmaf(f, dz, az);
}
K void __launch_bounds__(1024, 1) m23_a(const float4* R p, const float4* R src, float* R y, int n) {
    extern __shared__ __align__(128) float ring[];
    float4* s = reinterpret_cast<float4*>(ring);
    int i = blockIdx.x * 1024 + threadIdx.x;
    for (int k = threadIdx.x; k < 8192; k += 1024) s[k] = src[k];
    __syncthreads();
    float4 me = p[i];
    float ax = 0.f, ay = 0.f, az = 0.f;
#pragma unroll 8
    for (int k = 0; k < 8192; ++k) pull(me, s[k], ax, ay, az);
    y[i] = ax, y[n + i] = ay, y[2 * n + i] = az;
}
K void __launch_bounds__(128) m23_b(const float4* R p, const float4* R src, float* R y, int n) {
    __shared__ float4 s[512];
    int i = blockIdx.x * 128 + threadIdx.x;
    float4 me = p[i];
    float ax = 0.f, ay = 0.f, az = 0.f;
    for (int base = 0; base < 8192; base += 512) {
        for (int k = threadIdx.x; k < 512; k += 128) s[k] = src[base + k];
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < 512; ++k) pull(me, s[k], ax, ay, az);
        __syncthreads();
    }
    y[i] = ax, y[n + i] = ay, y[2 * n + i] = az;
}

// ---- 24: one time step of particles of 48 bytes
struct Body { float v[12]; };
struct State { float v[6]; };
K void __launch_bounds__(256) m24_a(const Body* R b, State* R out, float dt) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float w = b[i].v[10] * dt / b[i].v[9], damp = b[i].v[11];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        float v = fmaf(b[i].v[6 + k], w, b[i].v[3 + k] * damp);
        out[i].v[k] = fmaf(v, dt, b[i].v[k]);
        out[i].v[3 + k] = v;
    }
}
K void __launch_bounds__(256) m24_b(const float* R b, float* R out, float dt) {
    int i = blockIdx.x * 256 + threadIdx.x, n = gridDim.x * 256;
    float w = b[10 * n + i] * dt / b[9 * n + i], damp = b[11 * n + i];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        float v = fmaf(b[(6 + k) * n + i], w, b[(3 + k) * n + i] * damp);
        out[k * n + i] = fmaf(v, dt, b[k * n + i]);
        out[(3 + k) * n + i] = v;
    }
}

// ---- 25: squared distances of all pairs, 64 dimensions, a column a dimension
K void __launch_bounds__(256) m25_a(const float* R a, const float* R b, float* R d, int n) {
    int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
    float s = 0.f;
#pragma unroll 8
    for (int k = 0; k < 64; ++k) {
        float v = a[k * n + i] - b[k * n + j];
        s = fmaf(v, v, s);
    }
    d[(size_t)i * n + j] = s;
}
K void __launch_bounds__(256) m25_b(const float* R a, const float* R b, float* R d, int n) {
    __shared__ __align__(16) float as[64][64], bs[64][64];
    int t = threadIdx.x, tx = t & 15, ty = t >> 4;
#pragma unroll
    for (int k = ty; k < 64; k += 16) {
        *reinterpret_cast<float4*>(&as[k][tx * 4]) = four(a + k * n + blockIdx.y * 64 + tx * 4);
        *reinterpret_cast<float4*>(&bs[k][tx * 4]) = four(b + k * n + blockIdx.x * 64 + tx * 4);
    }
    __syncthreads();
    float s[4][4] = {};
#pragma unroll 8
    for (int k = 0; k < 64; ++k) {
        float4 a4 = four(&as[k][ty * 4]), b4 = four(&bs[k][tx * 4]);
        float u[4] = {a4.x, a4.y, a4.z, a4.w}, w[4] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float v = u[i] - w[j];
                s[i][j] = fmaf(v, v, s[i][j]);
            }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        __stcs(reinterpret_cast<float4*>(d + (size_t)(blockIdx.y * 64 + ty * 4 + i) * n + blockIdx.x * 64 + tx * 4), make_float4(s[i][0], s[i][1], s[i][2], s[i][3]));
}

// ---- 26: single-precision product, one result a thread from shared memory
K void __launch_bounds__(1024) m26_a(const float* R a, const float* R b, float* R c, int n) {
    __shared__ float as[32][32], bs[32][32];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
    float s = 0.f;
    for (int k0 = 0; k0 < n; k0 += 32) {
        as[ty][tx] = a[(size_t)row * n + k0 + tx];
        bs[ty][tx] = b[(size_t)(k0 + ty) * n + col];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; ++k) s = fmaf(as[ty][k], bs[k][tx], s);
        __syncthreads();
    }
    c[(size_t)row * n + col] = s;
}
K void __launch_bounds__(256, 2) m26_b(const float* R a, const float* R b, float* R c, int n) { gemm128(a, b, c, n); }

// ---- 27: sums of 8192 floats
K void __launch_bounds__(256) m27_a(const float4* R x, float* R y) {
    __shared__ float part[8];
    float s = 0.f;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        float4 v = __ldcs(x + (size_t)blockIdx.x * 2048 + k * 256 + threadIdx.x);
        s += (v.x + v.y) + (v.z + v.w);
    }
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; ++k) s += part[k];
        y[blockIdx.x] = s;
    }
}

// ---- 28: wgmma m64n128k16, A in registers, B in shared memory
K void __launch_bounds__(256, 2) m28_a(const half* R row, float* R y, int rounds) {
    __shared__ __align__(128) half b[2048];
    int t = threadIdx.x, g = (t & 127) / 32 * 16 + (t & 31) / 4;
    for (int k = t; k < 2048; k += 256) b[k] = __float2half(0.015625f);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    half2 lo = __half2half2(row[blockIdx.x * 64 + g]), hi = __half2half2(row[blockIdx.x * 64 + g + 8]);
    uint32_t a0 = *reinterpret_cast<uint32_t*>(&lo), a1 = *reinterpret_cast<uint32_t*>(&hi);
    // No swizzle: core matrices of 8 x 16 bytes; 128 bytes from one to the next in k, 256 bytes in n.
    uint64_t at = (uint64_t)__cvta_generic_to_shared(b), desc = (at & 0x3ffff) >> 4 | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
    float d[64] = {};
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; ++k)
            asm volatile("{ .reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, p, 1, 1, 0; }"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                         : "r"(a0), "r"(a1), "r"(a0), "r"(a1), "l"(desc));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    float s = 0.f, u = 0.f;
#pragma unroll
    for (int k = 0; k < 64; k += 4) s += d[k] + d[k + 1], u += d[k + 2] + d[k + 3];
    y[blockIdx.x * 256 + t] = s + 2.f * u;
}

// ---- 29: exchange between warps of a block, all of it through shared memory, 16 bytes a lane
K void __launch_bounds__(256) m29_a(const float4* R x, float4* R y, int rounds) {
    __shared__ float4 box[2][1024];
    int t = threadIdx.x;
    float4 v[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) v[q] = x[(size_t)blockIdx.x * 1024 + q * 256 + t];
#pragma unroll 2
    for (int r = 0; r < rounds; ++r) {
        float4* b = box[r & 1];
        int mate = t ^ (32 << (r & 1));
#pragma unroll
        for (int q = 0; q < 4; ++q) b[q * 256 + t] = v[q];
        __syncthreads();
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            float4 w = b[q * 256 + mate];
            v[q] = make_float4(fmaf(w.y, 0.25f, v[q].x * 0.75f), fmaf(w.z, 0.25f, v[q].y * 0.75f), fmaf(w.w, 0.25f, v[q].z * 0.75f), fmaf(w.x, 0.25f, v[q].w * 0.75f));
        }
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) y[(size_t)blockIdx.x * 1024 + q * 256 + t] = v[q];
}

// ---- 30: a ramp, written once
K void __launch_bounds__(256) m30_a(float4* R y, float step) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        int i = blockIdx.x * 1024 + k * 256 + threadIdx.x;
        float f = (float)(i & 0xffff) * step;
        __stcs(y + i, make_float4(f, f + 0.25f, f + 0.5f, f + 0.75f));
    }
}
