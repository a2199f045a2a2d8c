// Held-out kernels: kNN_a has a planted cause (or sits at a roof), kNN_b computes the same without it.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
#include <math_constants.h>
#include <stdint.h>
using namespace nvcuda;
#define K extern "C" __global__
#define R __restrict__

__constant__ float c_filter[81];
__constant__ float c_gamma[256];
__constant__ float c_poly[1024];

__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
__device__ __forceinline__ float warp_max(float v) {
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

// ---- 01: softmax over rows
K void k01_a(const float* R x, float* R y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* p = x + (size_t)row * cols;
    float* q = y + (size_t)row * cols;
    float m = -CUDART_INF_F, s = 0.f;
    for (int c = 0; c < cols; ++c) m = fmaxf(m, p[c]);
    for (int c = 0; c < cols; ++c) s += __expf(p[c] - m);
    float f = 1.f / s;
    for (int c = 0; c < cols; ++c) q[c] = __expf(p[c] - m) * f;
}
K void k01_b(const float* R x, float* R y, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (row >= rows) return;
    const float* p = x + (size_t)row * cols;
    float* q = y + (size_t)row * cols;
    float m = -CUDART_INF_F, s = 0.f;
    for (int c = lane; c < cols; c += 32) m = fmaxf(m, p[c]);
    m = warp_max(m);
    for (int c = lane; c < cols; c += 32) s += __expf(p[c] - m);
    float f = 1.f / warp_sum(s);
    for (int c = lane; c < cols; c += 32) q[c] = __expf(p[c] - m) * f;
}

// ---- 02: layer norm, rows of 4096, 1024 threads
K void __launch_bounds__(1024, 2) k02_a(const float4* R x, float4* R y) {
    __shared__ float part[1024];
    __shared__ float total[2];
    int t = threadIdx.x;
    float4 v = x[(size_t)blockIdx.x * 1024 + t];
    part[t] = v.x + v.y + v.z + v.w;
    __syncthreads();
    if (t == 0) {
        float s = 0.f;
        for (int i = 0; i < 1024; ++i) s += part[i];
        total[0] = s / 4096.f;
    }
    __syncthreads();
    float m = total[0];
    v.x -= m; v.y -= m; v.z -= m; v.w -= m;
    part[t] = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    __syncthreads();
    if (t == 0) {
        float s = 0.f;
        for (int i = 0; i < 1024; ++i) s += part[i];
        total[1] = rsqrtf(s / 4096.f + 1e-5f);
    }
    __syncthreads();
    float f = total[1];
    y[(size_t)blockIdx.x * 1024 + t] = make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
}
__device__ __forceinline__ float block_sum_1024(float v, float* part) {
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    return warp_sum(part[threadIdx.x & 31]);
}
K void __launch_bounds__(1024, 2) k02_b(const float4* R x, float4* R y) {
    __shared__ float part[2][32];
    int t = threadIdx.x;
    float4 v = x[(size_t)blockIdx.x * 1024 + t];
    float m = block_sum_1024(v.x + v.y + v.z + v.w, part[0]) / 4096.f;
    v.x -= m; v.y -= m; v.z -= m; v.w -= m;
    float f = rsqrtf(block_sum_1024(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w, part[1]) / 4096.f + 1e-5f);
    y[(size_t)blockIdx.x * 1024 + t] = make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
}

// ---- 03: weighted histogram, 16 bins; a byte holds weight * 16 + bin
K void __launch_bounds__(256) k03_a(const unsigned* R x, unsigned* out, int n) {
    __shared__ unsigned h[16];
    if (threadIdx.x < 16) h[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        unsigned w = x[i];
        for (int k = 0; k < 4; ++k, w >>= 8) atomicAdd(&h[w & 15], (w >> 4) & 15);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], h[threadIdx.x]);
}
K void __launch_bounds__(256) k03_b(const unsigned* R x, unsigned* out, int n) {
    __shared__ unsigned h[16][256];
    int t = threadIdx.x;
    for (int b = 0; b < 16; ++b) h[b][t] = 0;
    for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) {
        unsigned w = x[i];
        for (int k = 0; k < 4; ++k, w >>= 8) h[w & 15][t] += (w >> 4) & 15;
    }
    __syncthreads();
    for (int b = t >> 5; b < 16; b += 8) {
        unsigned s = 0;
        for (int j = t & 31; j < 256; j += 32) s += h[b][j];
        s = __reduce_add_sync(~0u, s);
        if ((t & 31) == 0) atomicAdd(&out[b], s);
    }
}

// ---- 04: sparse matrix times vector, CSR
K void k04_a(const int* R ptr, const int* R col, const float* R val, const float* R x, float* R y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    float s = 0.f;
    for (int k = ptr[row]; k < ptr[row + 1]; ++k) s += val[k] * x[col[k]];
    y[row] = s;
}
K void k04_b(const int* R ptr, const int* R col, const float* R val, const float* R x, float* R y, int n) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (row >= n) return;
    float s = 0.f;
    for (int k = ptr[row] + lane; k < ptr[row + 1]; k += 32) s += val[k] * x[col[k]];
    s = warp_sum(s);
    if (lane == 0) y[row] = s;
}

// ---- 05: dot product, 8 elements a thread
K void k05_a(const float* R x, const float* R y, float* out) {
    size_t i = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float s = 0.f;
#pragma unroll
    for (int k = 0; k < 8; ++k) s += x[i + k * 256] * y[i + k * 256];
    atomicAdd(out, s);
}
K void k05_b(const float* R x, const float* R y, float* out) {
    __shared__ float part[8];
    size_t i = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float s = 0.f;
#pragma unroll
    for (int k = 0; k < 8; ++k) s += x[i + k * 256] * y[i + k * 256];
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        s = 0.f;
        for (int k = 0; k < 8; ++k) s += part[k];
        atomicAdd(out, s);
    }
}

// ---- 06: star stencil of radius 4 in three dimensions, 64 planes a block; n is the inner extent, the arrays are n + 8 wide
#define W0 0.3f
#define W1 0.05f
#define W2 0.03f
#define W3 0.02f
#define W4 0.01f
__device__ __forceinline__ float star(float c, float s1, float s2, float s3, float s4) {
    return W0 * c + W1 * s1 + W2 * s2 + W3 * s3 + W4 * s4;
}
K void __launch_bounds__(256) k06_a(const float* R x, float* R y, int n) {
    int p = n + 8;
    size_t plane = (size_t)p * p;
    size_t i = (size_t)(blockIdx.z * 64 + 4) * plane + (size_t)(blockIdx.y * 8 + threadIdx.y + 4) * p + blockIdx.x * 32 + threadIdx.x + 4;
#pragma unroll 1
    for (int z = 0; z < 64; ++z, i += plane) {
        float s[5];
#pragma unroll
        for (int r = 1; r <= 4; ++r) s[r] = x[i - r] + x[i + r] + x[i - (size_t)r * p] + x[i + (size_t)r * p] + x[i - r * plane] + x[i + r * plane];
        y[i] = star(x[i], s[1], s[2], s[3], s[4]);
    }
}
K void __launch_bounds__(256) k06_b(const float* R x, float* R y, int n) {
    __shared__ float tile[16][40];
    int p = n + 8, tx = threadIdx.x, ty = threadIdx.y;
    size_t plane = (size_t)p * p;
    size_t corner = (size_t)(blockIdx.z * 64 + 4) * plane + (size_t)(blockIdx.y * 8) * p + blockIdx.x * 32;
    size_t i = corner + (size_t)(ty + 4) * p + tx + 4;
    float q[9];
#pragma unroll
    for (int k = 0; k < 8; ++k) q[k + 1] = x[i + (size_t)k * plane - 4 * plane];
#pragma unroll 1
    for (int z = 0; z < 64; ++z, i += plane, corner += plane) {
#pragma unroll
        for (int k = 0; k < 8; ++k) q[k] = q[k + 1];
        q[8] = x[i + 4 * plane];
        __syncthreads();
        tile[ty + 4][tx + 4] = q[4];
        // Halo: 8 rows of 32 above and below, 8 columns of 8 left and right.
        int hy = ty < 4 ? ty : ty + 8;
        tile[hy][tx + 4] = x[corner + (size_t)hy * p + tx + 4];
        if (tx < 8) {
            int hx = tx < 4 ? tx : tx + 32;
            tile[ty + 4][hx] = x[corner + (size_t)(ty + 4) * p + hx];
        }
        __syncthreads();
        float s[5];
#pragma unroll
        for (int r = 1; r <= 4; ++r)
            s[r] = tile[ty + 4][tx + 4 - r] + tile[ty + 4][tx + 4 + r] + tile[ty + 4 - r][tx + 4] + tile[ty + 4 + r][tx + 4] + q[4 - r] + q[4 + r];
        y[i] = star(q[4], s[1], s[2], s[3], s[4]);
    }
}

// ---- 07: 9 x 9 convolution; a block makes 32 x 64 pixels
__device__ __forceinline__ void load_patch(const float* R x, int pitch, float (*t)[40]) {
    for (int i = threadIdx.y * 32 + threadIdx.x; i < 72 * 40; i += 256)
        t[i / 40][i % 40] = x[(size_t)(blockIdx.y * 64 + i / 40) * pitch + blockIdx.x * 32 + i % 40];
}
K void __launch_bounds__(256) k07_a(const float* R x, const float* R f, float* R y, int n) {
    __shared__ float t[72][40];
    __shared__ float g[81];
    load_patch(x, n + 8, t);
    int id = threadIdx.y * 32 + threadIdx.x;
    if (id < 81) g[id] = f[id];
    __syncthreads();
#pragma unroll 1
    for (int o = 0; o < 8; ++o) {
        int r = threadIdx.y * 8 + o;
        float s = 0.f;
#pragma unroll 1
        for (int dy = 0; dy < 9; ++dy)
#pragma unroll
            for (int dx = 0; dx < 9; ++dx) s = fmaf(t[r + dy][threadIdx.x + dx], g[dy * 9 + dx], s);
        y[(size_t)(blockIdx.y * 64 + r) * n + blockIdx.x * 32 + threadIdx.x] = s;
    }
}
K void __launch_bounds__(256) k07_b(const float* R x, const float* R f, float* R y, int n) {
    __shared__ float t[72][40];
    load_patch(x, n + 8, t);
    __syncthreads();
    float s[8] = {};
#pragma unroll
    for (int dx = 0; dx < 9; ++dx) {
        float c[16];
#pragma unroll
        for (int k = 0; k < 16; ++k) c[k] = t[threadIdx.y * 8 + k][threadIdx.x + dx];
#pragma unroll
        for (int dy = 0; dy < 9; ++dy)
#pragma unroll
            for (int o = 0; o < 8; ++o) s[o] = fmaf(c[o + dy], c_filter[dy * 9 + dx], s[o]);
    }
#pragma unroll
    for (int o = 0; o < 8; ++o) y[(size_t)(blockIdx.y * 64 + threadIdx.y * 8 + o) * n + blockIdx.x * 32 + threadIdx.x] = s[o];
}

// ---- 08: inclusive scan of segments of 8192, a run of 32 a thread
template <int PITCH> __device__ __forceinline__ void scan_segment(const float* R x, float* R y, float* s) {
    __shared__ float off[256];
    __shared__ float w[8];
    int t = threadIdx.x, lane = t & 31;
    size_t base = (size_t)blockIdx.x * 8192;
#pragma unroll 8
    for (int e = t; e < 8192; e += 256) s[(e >> 5) * PITCH + (e & 31)] = x[base + e];
    __syncthreads();
    float a = 0.f;
#pragma unroll 1
    for (int k = 0; k < 32; ++k) {
        a += s[t * PITCH + k];
        s[t * PITCH + k] = a;
    }
    float v = a;
    for (int o = 1; o < 32; o <<= 1) {
        float u = __shfl_up_sync(~0u, v, o);
        if (lane >= o) v += u;
    }
    if (lane == 31) w[t >> 5] = v;
    __syncthreads();
    float before = v - a;
    for (int k = 0; k < (t >> 5); ++k) before += w[k];
    off[t] = before;
    __syncthreads();
#pragma unroll 8
    for (int e = t; e < 8192; e += 256) y[base + e] = s[(e >> 5) * PITCH + (e & 31)] + off[e >> 5];
}
K void __launch_bounds__(256) k08_a(const float* R x, float* R y) {
    __shared__ float s[256 * 32];
    scan_segment<32>(x, y, s);
}
K void __launch_bounds__(256) k08_b(const float* R x, float* R y) {
    __shared__ float s[256 * 33];
    scan_segment<33>(x, y, s);
}

// ---- 09: gravity among n bodies
__device__ __forceinline__ float3 pull(float4 me, const float4* R body, int from, int to, float4* tile) {
    float3 f = make_float3(0.f, 0.f, 0.f);
    for (int j = from; j < to; j += 256) {
        __syncthreads();
        tile[threadIdx.x] = body[j + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < 256; ++k) {
            float4 o = tile[k];
            float dx = o.x - me.x, dy = o.y - me.y, dz = o.z - me.z;
            float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-2f);
            float w = o.w * r * r * r;
            f.x += dx * w; f.y += dy * w; f.z += dz * w;
        }
    }
    return f;
}
K void __launch_bounds__(256) k09_a(const float4* R body, float* out, int n) {
    __shared__ float4 tile[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    float3 f = pull(body[i], body, 0, n, tile);
    out[i] = f.x; out[n + i] = f.y; out[2 * n + i] = f.z;
}
K void __launch_bounds__(256) k09_b(const float4* R body, float* out, int n) {
    __shared__ float4 tile[256];
    int i = blockIdx.x * 256 + threadIdx.x, part = n / gridDim.y;
    float3 f = pull(body[i], body, blockIdx.y * part, (blockIdx.y + 1) * part, tile);
    atomicAdd(&out[i], f.x); atomicAdd(&out[n + i], f.y); atomicAdd(&out[2 * n + i], f.z);
}

// ---- 10: Mandelbrot set, 2048 x 2048
__device__ __forceinline__ int escape(unsigned p, int limit) {
    float cx = -2.f + 2.5f / 2048.f * (float)(p & 2047), cy = -1.25f + 2.5f / 2048.f * (float)(p >> 11);
    float x = 0.f, y = 0.f;
    int k = 0;
    while (k < limit && x * x + y * y < 4.f) {
        float u = x * x - y * y + cx;
        y = 2.f * x * y + cy;
        x = u;
        ++k;
    }
    return k;
}
K void __launch_bounds__(256) k10_a(int* R out, int limit) {
    unsigned p = ((blockIdx.x * 256 + threadIdx.x) * 2654435761u) & ((1u << 22) - 1);
    out[p] = escape(p, limit);
}
K void __launch_bounds__(256) k10_b(int* R out, int limit) {
    unsigned p = blockIdx.x * 256 + threadIdx.x;
    out[p] = escape(p, limit);
}

// ---- 11: every thread sorts 32 numbers, stored n apart
K void __launch_bounds__(256) k11_a(const int* R x, int* R y, int n) {
    int t = blockIdx.x * 256 + threadIdx.x;
    int v[32];
#pragma unroll 1
    for (int i = 0; i < 32; ++i) v[i] = x[(size_t)i * n + t];
#pragma unroll 1
    for (int k = 2; k <= 32; k <<= 1)
#pragma unroll 1
        for (int j = k >> 1; j; j >>= 1)
#pragma unroll 1
            for (int p = 0; p < 16; ++p) {
                int i = ((p & ~(j - 1)) << 1) | (p & (j - 1)), l = i | j;
                int a = v[i], b = v[l], lo = min(a, b), hi = max(a, b);
                bool up = (i & k) == 0;
                v[i] = up ? lo : hi;
                v[l] = up ? hi : lo;
            }
#pragma unroll 1
    for (int i = 0; i < 32; ++i) y[(size_t)i * n + t] = v[i];
}
K void __launch_bounds__(256) k11_b(const int* R x, int* R y, int n) {
    int t = blockIdx.x * 256 + threadIdx.x;
    int v[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] = x[(size_t)i * n + t];
#pragma unroll
    for (int k = 2; k <= 32; k <<= 1)
#pragma unroll
        for (int j = k >> 1; j; j >>= 1)
#pragma unroll
            for (int p = 0; p < 16; ++p) {
                int i = ((p & ~(j - 1)) << 1) | (p & (j - 1)), l = i | j;
                int a = v[i], b = v[l], lo = min(a, b), hi = max(a, b);
                bool up = (i & k) == 0;
                v[i] = up ? lo : hi;
                v[l] = up ? hi : lo;
            }
#pragma unroll
    for (int i = 0; i < 32; ++i) y[(size_t)i * n + t] = v[i];
}

// ---- 12: highest attention score of each query; heads x seq x 64 in half precision
K void __launch_bounds__(128) k12_a(const half* R q, const half* R k, float* R out, int seq) {
    __shared__ __align__(16) float qs[64][68];
    __shared__ __align__(16) float ks[64][68];
    int t = threadIdx.x, r = t & 63, c = t >> 6, ty = t >> 4, tx = t & 15;
    const half* qh = q + ((size_t)blockIdx.y * seq + blockIdx.x * 64) * 64;
    const half* kh = k + (size_t)blockIdx.y * seq * 64;
    for (int i = 0; i < 4; ++i) {
        int d0 = (c + 2 * i) * 8;
        union { uint4 u; half h[8]; } v;
        v.u = *(const uint4*)(qh + r * 64 + d0);
        for (int j = 0; j < 8; ++j) qs[d0 + j][r] = __half2float(v.h[j]);
    }
    float best[8];
    for (int i = 0; i < 8; ++i) best[i] = -CUDART_INF_F;
    for (int k0 = 0; k0 < seq; k0 += 64) {
        __syncthreads();
        for (int i = 0; i < 4; ++i) {
            int d0 = (c + 2 * i) * 8;
            union { uint4 u; half h[8]; } v;
            v.u = *(const uint4*)(kh + (size_t)(k0 + r) * 64 + d0);
            for (int j = 0; j < 8; ++j) ks[d0 + j][r] = __half2float(v.h[j]);
        }
        __syncthreads();
        float s[8][4] = {};
#pragma unroll 8
        for (int d = 0; d < 64; ++d) {
            float a[8], b[4];
            *(float4*)a = *(const float4*)&qs[d][ty * 8];
            *(float4*)(a + 4) = *(const float4*)&qs[d][ty * 8 + 4];
            *(float4*)b = *(const float4*)&ks[d][tx * 4];
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) s[i][j] = fmaf(a[i], b[j], s[i][j]);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) best[i] = fmaxf(best[i], fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3])));
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        float m = best[i];
        for (int o = 8; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
        if (tx == 0) out[(size_t)blockIdx.y * seq + blockIdx.x * 64 + ty * 8 + i] = m;
    }
}
K void __launch_bounds__(128) k12_b(const half* R q, const half* R k, float* R out, int seq) {
    __shared__ __align__(32) half qs[64][72];
    __shared__ __align__(32) half ks[64][72];
    __shared__ __align__(32) float st[64][68];
    int t = threadIdx.x, w = t >> 5;
    const half* qh = q + ((size_t)blockIdx.y * seq + blockIdx.x * 64) * 64;
    const half* kh = k + (size_t)blockIdx.y * seq * 64;
    for (int i = t; i < 512; i += 128) *(uint4*)&qs[i >> 3][(i & 7) * 8] = *(const uint4*)(qh + i * 8);
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a[4];
    for (int d = 0; d < 4; ++d) wmma::load_matrix_sync(a[d], &qs[w * 16][d * 16], 72);
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> best[4];
    for (int j = 0; j < 4; ++j) wmma::fill_fragment(best[j], -CUDART_INF_F);
    for (int k0 = 0; k0 < seq; k0 += 64) {
        __syncthreads();
        for (int i = t; i < 512; i += 128) *(uint4*)&ks[i >> 3][(i & 7) * 8] = *(const uint4*)(kh + (size_t)k0 * 64 + i * 8);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            wmma::fragment<wmma::accumulator, 16, 16, 16, float> s;
            wmma::fill_fragment(s, 0.f);
#pragma unroll
            for (int d = 0; d < 4; ++d) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
                wmma::load_matrix_sync(b, &ks[j * 16][d * 16], 72);
                wmma::mma_sync(s, a[d], b, s);
            }
            for (int e = 0; e < s.num_elements; ++e) best[j].x[e] = fmaxf(best[j].x[e], s.x[e]);
        }
    }
    for (int j = 0; j < 4; ++j) wmma::store_matrix_sync(&st[w * 16][j * 16], best[j], 68, wmma::mem_row_major);
    __syncthreads();
    if (t < 64) {
        float m = -CUDART_INF_F;
        for (int j = 0; j < 64; ++j) m = fmaxf(m, st[t][j]);
        out[(size_t)blockIdx.y * seq + blockIdx.x * 64 + t] = m;
    }
}

// ---- 13: column sums up to a negative end mark
K void __launch_bounds__(256) k13_a(const float* R x, float* R y, int cols, int rows) {
    int c = blockIdx.x * 256 + threadIdx.x;
    float s = 0.f;
    for (const float* p = x + c;; p += cols) {
        float v = *p;
        if (v < 0.f) break;
        s += v;
    }
    y[c] = s;
}
K void __launch_bounds__(256) k13_b(const float* R x, float* R y, int cols, int rows) {
    int c = blockIdx.x * 256 + threadIdx.x;
    float s = 0.f;
#pragma unroll 8
    for (int r = 0; r < rows; ++r) s += x[(size_t)r * cols + c];
    y[c] = s;
}

// ---- 14: sums over linked lists; a node is 31 numbers and the place of the next node
K void __launch_bounds__(128) k14_a(const int* R node, const int* R order, int* R y, int hops) {
    int list = (blockIdx.x * 128 + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    int at = order[(size_t)list * hops], s = 0;
    for (int h = 0; h < hops; ++h) {
        int v = node[(size_t)at * 32 + lane];
        at = __shfl_sync(~0u, v, 31);
        s += v;
    }
    y[list * 32 + lane] = lane < 31 ? s : 0;
}
K void __launch_bounds__(128) k14_b(const int* R node, const int* R order, int* R y, int hops) {
    int list = (blockIdx.x * 128 + threadIdx.x) >> 5, lane = threadIdx.x & 31, s = 0;
    for (int h = 0; h < hops; h += 32) {
        int mine = order[(size_t)list * hops + h + lane];
#pragma unroll 8
        for (int k = 0; k < 32; ++k) s += node[(size_t)__shfl_sync(~0u, mine, k) * 32 + lane];
    }
    y[list * 32 + lane] = lane < 31 ? s : 0;
}

// ---- 15: a mixture of eight logistic curves
K void __launch_bounds__(256) k15_a(const float* R x, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = x[i];
    double s = 0.0;
#pragma unroll
    for (int j = 0; j < 8; ++j) s += 0.125 / (1.0 + exp(-1.7 * (v - (0.5 * j - 2.0))));
    y[i] = s;
}
K void __launch_bounds__(256) k15_b(const float* R x, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = x[i];
    float s = 0.f;
#pragma unroll
    for (int j = 0; j < 8; ++j) s += 0.125f / (1.0f + expf(-1.7f * (v - (0.5f * j - 2.0f))));
    y[i] = s;
}

// ---- 16: eight rounds of hashing into buckets whose number is known at run time
K void __launch_bounds__(256) k16_a(const unsigned* R x, const unsigned* R p, const unsigned long long* R m, unsigned* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    unsigned v = x[i];
#pragma unroll
    for (int j = 0; j < 8; ++j) v = (v * 2654435761u + j) % p[j];
    y[i] = v;
}
K void __launch_bounds__(256) k16_b(const unsigned* R x, const unsigned* R p, const unsigned long long* R m, unsigned* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    unsigned v = x[i];
#pragma unroll
    for (int j = 0; j < 8; ++j) v = (unsigned)__umul64hi(m[j] * (v * 2654435761u + j), p[j]);  // m = ceil(2^64 / p)
    y[i] = v;
}

// ---- 17: a polynomial of degree 1023 by Horner's rule, 64 points a thread
K void __launch_bounds__(128) k17_a(const float* R x, float* R y) {
    int i = blockIdx.x * 128 + threadIdx.x, n = gridDim.x * 128;
#pragma unroll 1
    for (int e = 0; e < 64; ++e) {
        float v = x[i + e * n], s = 0.f;
#pragma unroll 16
        for (int k = 0; k < 1024; ++k) s = fmaf(s, v, c_poly[k]);
        y[i + e * n] = s;
    }
}
K void __launch_bounds__(128) k17_b(const float* R x, float* R y) {
    int i = blockIdx.x * 128 + threadIdx.x, n = gridDim.x * 128;
#pragma unroll 1
    for (int e = 0; e < 64; e += 8) {
        float v[8], s[8] = {};
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = x[i + (e + j) * n];
#pragma unroll 16
        for (int k = 0; k < 1024; ++k)
#pragma unroll
            for (int j = 0; j < 8; ++j) s[j] = fmaf(s[j], v[j], c_poly[k]);
#pragma unroll
        for (int j = 0; j < 8; ++j) y[i + (e + j) * n] = s[j];
    }
}

// ---- 18: a signal of four tones at late times
K void __launch_bounds__(256) k18_a(const float* R x, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = x[i];
    y[i] = sinf(v) + sinf(v * 1.25f) + sinf(v * 1.5f) + sinf(v * 1.75f);
}
__device__ __forceinline__ float sin_late(float x) {
    double d = x, k = rint(d * 0.31830988618379067);
    double r = fma(k, -1.2246467991473532e-16, fma(k, -3.141592653589793, d));
    float s = __sinf((float)r);
    return ((long long)k & 1) ? -s : s;
}
K void __launch_bounds__(256) k18_b(const float* R x, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = x[i];
    y[i] = sin_late(v) + sin_late(v * 1.25f) + sin_late(v * 1.5f) + sin_late(v * 1.75f);
}

// ---- 19: a sum of 64 exponentials
__device__ __forceinline__ float ex2(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
// Splits off the nearest integer, takes 2^f from a series of degree 5 for |f| <= 1/2, and adds the integer to the exponent.
__device__ __forceinline__ float ex2_fma(float v) {
    float m = v + 12582912.f, f = v - (m - 12582912.f);
    float p = fmaf(fmaf(fmaf(fmaf(fmaf(1.3333558e-3f, f, 9.6181291e-3f), f, 5.5504109e-2f), f, 2.4022651e-1f), f, 6.9314718e-1f), f, 1.f);
    return __int_as_float(__float_as_int(p) + (__float_as_int(m) << 23));
}
__device__ constexpr float rate(int j) { return 0.25f + (float)((j * 37) % 64) / 16.f; }
K void __launch_bounds__(256) k19_a(const float* R x, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = x[i], s = 0.f;
#pragma unroll
    for (int j = 0; j < 64; ++j) s += ex2(v * rate(j));
    y[i] = s;
}
K void __launch_bounds__(256) k19_b(const float* R x, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = x[i], s = 0.f;
#pragma unroll
    for (int j = 0; j < 64; ++j) s += j % 4 == 3 ? ex2_fma(v * rate(j)) : ex2(v * rate(j));
    y[i] = s;
}

// ---- 20: 40 coupled values a thread, stored n apart
__device__ __forceinline__ void relax(const float* R x, float* R y, int n, int rounds) {
    int t = blockIdx.x * 256 + threadIdx.x;
    float v[40];
#pragma unroll
    for (int i = 0; i < 40; ++i) v[i] = x[(size_t)i * n + t];
#pragma unroll 1
    for (int r = 0; r < rounds; ++r)
#pragma unroll
        for (int i = 0; i < 40; ++i) v[i] = fmaf(v[(i + 13) % 40] - v[i], 0.25f, v[i]);
#pragma unroll
    for (int i = 0; i < 40; ++i) y[(size_t)i * n + t] = v[i];
}
K void __launch_bounds__(256, 8) k20_a(const float* R x, float* R y, int n, int rounds) { relax(x, y, n, rounds); }
K void __launch_bounds__(256, 4) k20_b(const float* R x, float* R y, int n, int rounds) { relax(x, y, n, rounds); }

// ---- 21: a fixed number of steps for every element
__device__ __forceinline__ float settle(float v) { return fmaf(v, 0.999f, 0.0003f); }
K void __launch_bounds__(1024, 1) k21_a(const float* R x, float* R y, int steps) {
    size_t i = (size_t)blockIdx.x * 24 * 1024 + threadIdx.x;
    float v[24];
#pragma unroll
    for (int e = 0; e < 24; ++e) v[e] = x[i + e * 1024];
#pragma unroll 1
    for (int k = 0; k < steps; ++k)
#pragma unroll
        for (int e = 0; e < 24; ++e) v[e] = settle(v[e]);
#pragma unroll
    for (int e = 0; e < 24; ++e) y[i + e * 1024] = v[e];
}
K void __launch_bounds__(256) k21_b(const float* R x, float* R y, int steps) {
    size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
    float v = x[i];
#pragma unroll 16
    for (int k = 0; k < steps; ++k) v = settle(v);
    y[i] = v;
}

// ---- 22: sums of segments, one of them far longer
__device__ __forceinline__ float range_sum(const float* R x, int from, int to) {
    __shared__ float part[8];
    float s = 0.f;
#pragma unroll 4
    for (int i = from + threadIdx.x; i < to; i += 256) s += x[i];
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
    __syncthreads();
    s = 0.f;
    for (int k = 0; k < 8; ++k) s += part[k];
    return s;
}
K void __launch_bounds__(256) k22_a(const float* R x, const int* R from, const int* R to, const int* R seg, float* out) {
    float s = range_sum(x, from[blockIdx.x], to[blockIdx.x]);
    if (threadIdx.x == 0) out[seg[blockIdx.x]] = s;
}
K void __launch_bounds__(256) k22_b(const float* R x, const int* R from, const int* R to, const int* R seg, float* out) {
    float s = range_sum(x, from[blockIdx.x], to[blockIdx.x]);
    if (threadIdx.x == 0) atomicAdd(&out[seg[blockIdx.x]], s);
}

// ---- 23: gamma correction of bytes through a table
K void __launch_bounds__(256) k23_a(const uchar4* R x, const float* R table, float4* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    uchar4 v = x[i];
    y[i] = make_float4(c_gamma[v.x], c_gamma[v.y], c_gamma[v.z], c_gamma[v.w]);
}
K void __launch_bounds__(256) k23_b(const uchar4* R x, const float* R table, float4* R y) {
    __shared__ float g[256];
    g[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * 256 + threadIdx.x;
    uchar4 v = x[i];
    y[i] = make_float4(g[v.x], g[v.y], g[v.z], g[v.w]);
}

// ---- 24: C = A B^T in half precision on tensor cores, n x n, tiles of 64 x 64 x 64
template <int PITCH> __device__ __forceinline__ void product(const half* R a, const half* R b, float* R c, int n, half* as, half* bs) {
    int t = threadIdx.x, wy = t >> 6, wx = (t >> 5) & 1;
    const half* ga = a + (size_t)blockIdx.y * 64 * n;
    const half* gb = b + (size_t)blockIdx.x * 64 * n;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(acc[i][j], 0.f);
    for (int k0 = 0; k0 < n; k0 += 64) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int e = t + i * 128, r = e >> 3, q = (e & 7) * 8;
            *(uint4*)(as + r * PITCH + q) = *(const uint4*)(ga + (size_t)r * n + k0 + q);
            *(uint4*)(bs + r * PITCH + q) = *(const uint4*)(gb + (size_t)r * n + k0 + q);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 64; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(fa[i], as + (wy * 32 + i * 16) * PITCH + k, PITCH);
#pragma unroll
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(fb[j], bs + (wx * 32 + j * 16) * PITCH + k, PITCH);
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
        }
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(c + (size_t)(blockIdx.y * 64 + wy * 32 + i * 16) * n + blockIdx.x * 64 + wx * 32 + j * 16, acc[i][j], n, wmma::mem_row_major);
}
K void __launch_bounds__(128) k24_a(const half* R a, const half* R b, float* R c, int n) {
    __shared__ __align__(128) half s[2 * 64 * 64];
    product<64>(a, b, c, n, s, s + 64 * 64);
}
K void __launch_bounds__(128) k24_b(const half* R a, const half* R b, float* R c, int n) {
    __shared__ __align__(128) half s[2 * 64 * 72];
    product<72>(a, b, c, n, s, s + 64 * 72);
}

// ---- 25: 8192 steps with a different constant in each of 256
__device__ constexpr float factor(int k) { return 1.f + 0.01f * ((float)((k * 101) % 256) / 256.f - 0.498f); }
__device__ __forceinline__ void steps256(float& u, float& v) {
#pragma unroll
    for (int k = 0; k < 256; ++k) {
        u = fmaf(u, factor(k), 1e-5f);
        v = fmaf(v, factor(k), 1e-5f);
    }
}
K void __launch_bounds__(256) k25_a(const float* R x, float* R y, int per) {
    int n = gridDim.x * 256;
#pragma unroll 1
    for (int e = 0; e < per; e += 2) {
        int i = blockIdx.x * 256 + threadIdx.x + e * n;
        float u = x[i], v = x[i + n];
#pragma unroll
        for (int r = 0; r < 32; ++r) steps256(u, v);
        y[i] = u;
        y[i + n] = v;
    }
}
K void __launch_bounds__(256) k25_b(const float* R x, float* R y, int per) {
    int n = gridDim.x * 256;
#pragma unroll 1
    for (int e = 0; e < per; e += 2) {
        int i = blockIdx.x * 256 + threadIdx.x + e * n;
        float u = x[i], v = x[i + n];
#pragma unroll 1
        for (int r = 0; r < 32; ++r) steps256(u, v);
        y[i] = u;
        y[i + n] = v;
    }
}

// ---- 26: one element in eight needs a refinement
__device__ __forceinline__ float refine(float v, int steps) {
#pragma unroll 16
    for (int k = 0; k < steps; ++k) v = fmaf(v, 0.999f, 0.0005f);
    return v;
}
K void __launch_bounds__(256) k26_a(const float* R x, float* R y, float above, int steps) {
    size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < 8; ++k) {
        float v = x[base + k * 256];
        if (v > above) v = refine(v, steps);
        y[base + k * 256] = v;
    }
}
K void __launch_bounds__(256) k26_b(const float* R x, float* R y, float above, int steps) {
    __shared__ int place[2048];
    __shared__ float value[2048];
    __shared__ int count;
    int t = threadIdx.x, lane = t & 31;
    size_t base = (size_t)blockIdx.x * 2048;
    if (t == 0) count = 0;
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < 8; ++k) {
        float v = x[base + k * 256 + t];
        bool take = v > above;
        unsigned who = __ballot_sync(~0u, take);
        int at = 0;
        if (lane == 0) at = atomicAdd(&count, __popc(who));
        at = __shfl_sync(~0u, at, 0) + __popc(who & ((1u << lane) - 1));
        if (take) {
            place[at] = k * 256 + t;
            value[at] = v;
        } else
            y[base + k * 256 + t] = v;
    }
    __syncthreads();
    for (int k = t; k < count; k += 256) y[base + place[k]] = refine(value[k], steps);
}

// ---- 27: squared distances of a query to many vectors of 128 numbers, tiles of 16 vectors through a ring of 16 buffers
template <int AHEAD> __device__ __forceinline__ void distances(const float4* R data, const float4* R query, float* R out, int tiles) {
    extern __shared__ float4 ring[];
    int t = threadIdx.x, part = t & 7, vec = t >> 3;
    float4 q[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) q[k] = query[part + 8 * k];
    int mine = blockIdx.x < tiles ? (tiles - blockIdx.x - 1) / gridDim.x + 1 : 0;
    auto fetch = [&](int s) {
        if (s < mine) {
            const float4* from = data + (size_t)(blockIdx.x + s * gridDim.x) * 512;
            float4* to = ring + (s & 15) * 512;
#pragma unroll
            for (int k = 0; k < 4; ++k) __pipeline_memcpy_async(to + t + 128 * k, from + t + 128 * k, 16);
        }
        __pipeline_commit();
    };
    for (int s = 0; s < AHEAD; ++s) fetch(s);
    for (int s = 0; s < mine; ++s) {
        fetch(s + AHEAD);
        __pipeline_wait_prior(AHEAD);
        __syncthreads();
        const float4* v = ring + (s & 15) * 512 + vec * 32;
        float d = 0.f;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float4 p = v[part + 8 * k];
            float a = p.x - q[k].x, b = p.y - q[k].y, c = p.z - q[k].z, e = p.w - q[k].w;
            d += a * a + b * b + c * c + e * e;
        }
        for (int o = 4; o; o >>= 1) d += __shfl_xor_sync(~0u, d, o);
        if (part == 0) out[(blockIdx.x + s * gridDim.x) * 16 + vec] = d;
        // A buffer is written again 16 - AHEAD tiles later at the earliest, and every tile has a barrier: no second one is needed.
    }
}
K void __launch_bounds__(128) k27_a(const float4* R data, const float4* R query, float* R out, int tiles) { distances<0>(data, query, out, tiles); }
K void __launch_bounds__(128) k27_b(const float4* R data, const float4* R query, float* R out, int tiles) { distances<8>(data, query, out, tiles); }

// ---- 28: kinetic energy of particles
struct Particle { float v[16]; };
K void __launch_bounds__(256) k28_a(const Particle* R p, const float* R m, const float* R vx, const float* R vy, const float* R vz, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float a = p[i].v[5], b = p[i].v[9], c = p[i].v[13];
    y[i] = 0.5f * p[i].v[0] * (a * a + b * b + c * c);
}
K void __launch_bounds__(256) k28_b(const Particle* R p, const float* R m, const float* R vx, const float* R vy, const float* R vz, float* R y) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float a = vx[i], b = vy[i], c = vz[i];
    y[i] = 0.5f * m[i] * (a * a + b * b + c * c);
}

// ---- 29: a stream with a rare exception that needs many values at once
__device__ __forceinline__ void stream_or_repair(const float* R x, const float* R aux, float* R y) {
    size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
    float v = x[i];
    if (v < -1e30f) {
        float w[168];
#pragma unroll
        for (int k = 0; k < 168; ++k) w[k] = aux[k * 256 + threadIdx.x];
#pragma unroll 1
        for (int r = 0; r < 8; ++r)
#pragma unroll
            for (int k = 0; k < 168; ++k) w[k] = fmaf(w[(k + 53) % 168], 0.25f, w[k]);
        v = 0.f;
#pragma unroll
        for (int k = 0; k < 168; ++k) v += w[k];
    }
    y[i] = 2.f * v + 1.f;
}
K void __launch_bounds__(256, 1) k29_a(const float* R x, const float* R aux, float* R y) { stream_or_repair(x, aux, y); }
K void __launch_bounds__(256, 8) k29_b(const float* R x, const float* R aux, float* R y) { stream_or_repair(x, aux, y); }

// ---- 30: values looked up in a table of 24576 in shared memory
K void k30_a(const int* R x, const float* R table, float* R y, int n) {
    extern __shared__ float tab[];
    for (int k = threadIdx.x; k < 24576; k += blockDim.x) tab[k] = table[k];
    __syncthreads();
#pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = tab[x[i]];
}
K void k30_b(const int* R x, const float* R table, float* R y, int n) {
    extern __shared__ float tab[];
    for (int k = threadIdx.x; k < 24576; k += blockDim.x) tab[k] = table[k];
    __syncthreads();
#pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = tab[x[i]];
}

// ---- 31: y = a x + y in half precision
K void __launch_bounds__(256) k31_a(const half* R x, const half* R y, half* R out) {
    int i = blockIdx.x * 256 + threadIdx.x;
    out[i] = __float2half(fmaf(0.75f, __half2float(x[i]), __half2float(y[i])));
}
K void __launch_bounds__(256) k31_b(const half* R x, const half* R y, half* R out) {
    int i = blockIdx.x * 256 + threadIdx.x;
    union { uint4 u; half h[8]; } a, b;
    a.u = ((const uint4*)x)[i];
    b.u = ((const uint4*)y)[i];
#pragma unroll
    for (int k = 0; k < 8; ++k) b.h[k] = __float2half(fmaf(0.75f, __half2float(a.h[k]), __half2float(b.h[k])));
    ((uint4*)out)[i] = b.u;
}

// ---- 32: triad
K void __launch_bounds__(256) k32_a(const float4* R x, const float4* R y, float4* R out) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float4 a = x[i], b = y[i];
    out[i] = make_float4(fmaf(3.f, b.x, a.x), fmaf(3.f, b.y, a.y), fmaf(3.f, b.z, a.z), fmaf(3.f, b.w, a.w));
}

// ---- 33: many steps for 8 elements a thread at once
K void __launch_bounds__(256) k33_a(const float* R x, float* R y, int steps) {
    size_t i = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float v[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = x[i + e * 256];
#pragma unroll 8
    for (int k = 0; k < steps; ++k)
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = settle(v[e]);
#pragma unroll
    for (int e = 0; e < 8; ++e) y[i + e * 256] = v[e];
}

// ---- 34: sums over a buffer that fits the L2, each SM passing over all of it in an order of its own
K void __launch_bounds__(256) k34_a(const float4* R x, float* R y, int n, int loads) {
    int i = blockIdx.x * 256 + threadIdx.x, stride = gridDim.x * 256;
    int at = i % n;
    float s = 0.f;
#pragma unroll 4
    for (int k = 0; k < loads; ++k) {
        float4 v = __ldcg(x + at);
        s += v.x + v.y + v.z + v.w;
        at += stride;
        at -= at >= n ? n : 0;
    }
    y[i] = s;
}

// ---- 35: circular correlation of 1024 four-component samples with a ramp
K void __launch_bounds__(256) k35_a(const float4* R x, float4* R y, int taps) {
    __shared__ float4 s[1024];
    int t = threadIdx.x;
    for (int k = t; k < 1024; k += 256) s[k] = x[(size_t)(blockIdx.x & 63) * 1024 + k];
    __syncthreads();
    float4 a = make_float4(0.f, 0.f, 0.f, 0.f);
    float w = 0.f;
#pragma unroll 8
    for (int k = 0; k < taps; ++k, w += 0.0009765625f) {
        float4 v = s[(t + k) & 1023];
        a.x = fmaf(v.x, w, a.x); a.y = fmaf(v.y, w, a.y); a.z = fmaf(v.z, w, a.z); a.w = fmaf(v.w, w, a.w);
    }
    y[(size_t)blockIdx.x * 256 + t] = a;
}
