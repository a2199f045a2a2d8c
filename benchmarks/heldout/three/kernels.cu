// Held-out kernels, third set: nNN_a has a planted cause (or sits at a roof), nNN_b computes the same without it.
#include <cuda_fp16.h>
#include <stdint.h>
#define K extern "C" __global__
#define R __restrict__

__constant__ float c_dct[64];
__constant__ float c_quant[64];
__constant__ int c_zigzag[64];

// ---- 01: y = A x, A in ELLPACK with 32 entries a row, a thread a row
K void __launch_bounds__(256) n01_a(const int* R col, const float* R val, const float* R x, float* R y, int rows) {
    int row = blockIdx.x * 256 + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.f;
#pragma unroll 8
    for (int k = 0; k < 32; ++k) sum += val[row * 32 + k] * __ldg(x + col[row * 32 + k]);
    y[row] = sum;
}
K void __launch_bounds__(256) n01_b(const int* R col, const float* R val, const float* R x, float* R y, int rows) {
    int row = blockIdx.x * 256 + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.f;
#pragma unroll 8
    for (int k = 0; k < 32; ++k) sum += val[k * rows + row] * __ldg(x + col[k * rows + row]);
    y[row] = sum;
}

// ---- 02: one Jacobi sweep, 7 points, u[i][j][k]
__device__ __forceinline__ void jacobi(const float* R u, float* R out, int i, int j, int k, int nx, int ny, int nz, float c0, float c1) {
    int at = (i * ny + j) * nz + k;
    float v = u[at];
    if (i > 0 && i < nx - 1 && j > 0 && j < ny - 1 && k > 0 && k < nz - 1)
        v = c0 * v + c1 * (((u[at - 1] + u[at + 1]) + (u[at - nz] + u[at + nz])) + (u[at - ny * nz] + u[at + ny * nz]));
    out[at] = v;
}
K void __launch_bounds__(256) n02_a(const float* R u, float* R out, int nx, int ny, int nz, float c0, float c1) {
    int i = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y * 8 + threadIdx.y, k = blockIdx.z;
    jacobi(u, out, i, j, k, nx, ny, nz, c0, c1);
}
K void __launch_bounds__(256) n02_b(const float* R u, float* R out, int nx, int ny, int nz, float c0, float c1) {
    int k = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y * 8 + threadIdx.y, i = blockIdx.z;
    jacobi(u, out, i, j, k, nx, ny, nz, c0, c1);
}

// ---- 03: temporal denoising of 8-bit frames: (3 before + now + 2) / 4
K void __launch_bounds__(256) n03_a(const uint8_t* R before, const uint8_t* R now, uint8_t* R out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = (3 * before[i] + now[i] + 2) >> 2;
}
__device__ __forceinline__ uint32_t blend4(uint32_t p, uint32_t c) {
    uint32_t even = 3 * (p & 0x00ff00ffu) + (c & 0x00ff00ffu) + 0x00020002u;
    uint32_t odd = 3 * ((p >> 8) & 0x00ff00ffu) + ((c >> 8) & 0x00ff00ffu) + 0x00020002u;
    return ((even >> 2) & 0x00ff00ffu) | (((odd >> 2) & 0x00ff00ffu) << 8);
}
K void __launch_bounds__(256) n03_b(const uint4* R before, const uint4* R now, uint4* R out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n / 16) return;
    uint4 p = before[i], c = now[i];
    out[i] = make_uint4(blend4(p.x, c.x), blend4(p.y, c.y), blend4(p.z, c.z), blend4(p.w, c.w));
}

// ---- 04: depthwise convolution 7 x 7, channels last, padded input 62 x 62 x 256, output 56 x 56 x 256
constexpr int CH = 256, WI = 62, WO = 56;
K void __launch_bounds__(256) n04_a(const float* R x, const float* R w, float* R y) {
    int c = threadIdx.x, ox = blockIdx.x, oy = blockIdx.y, n = blockIdx.z;
    const float* in = x + ((n * WI + oy) * WI + ox) * CH + c;
    float s = 0.f;
#pragma unroll
    for (int ky = 0; ky < 7; ++ky)
#pragma unroll
        for (int kx = 0; kx < 7; ++kx) s = __fmaf_rn(in[(ky * WI + kx) * CH], w[(ky * 7 + kx) * CH + c], s);
    y[((n * WO + oy) * WO + ox) * CH + c] = s;
}
K void __launch_bounds__(256) n04_b(const float* R x, const float* R w, float* R y) {
    int c = threadIdx.x, ox = blockIdx.x * 7, oy = blockIdx.y, n = blockIdx.z;
    const float* in = x + ((n * WI + oy) * WI + ox) * CH + c;
    float s[7] = {};
#pragma unroll
    for (int ky = 0; ky < 7; ++ky) {
        float v[13], f[7];
#pragma unroll
        for (int k = 0; k < 13; ++k) v[k] = in[(ky * WI + k) * CH];
#pragma unroll
        for (int k = 0; k < 7; ++k) f[k] = w[(ky * 7 + k) * CH + c];
#pragma unroll
        for (int kx = 0; kx < 7; ++kx)
#pragma unroll
            for (int o = 0; o < 7; ++o) s[o] = __fmaf_rn(v[o + kx], f[kx], s[o]);
    }
#pragma unroll
    for (int o = 0; o < 7; ++o) y[((n * WO + oy) * WO + ox + o) * CH + c] = s[o];
}

// ---- 05: scores of attention decoding with grouped queries: 8 heads share 2 heads of the key cache, 128 dimensions in fp16
__device__ __forceinline__ void widen(uint4 v, float* f) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        float2 p = __half22float2(*reinterpret_cast<const __half2*>(w + k));
        f[2 * k] = p.x;
        f[2 * k + 1] = p.y;
    }
}
template <int HEADS> __device__ __forceinline__ void scores(const uint4* R q, const uint4* R keys, float* R out, int T, float scale) {
    int lane = threadIdx.x & 31, l = lane & 15, b = blockIdx.y, head = blockIdx.z * HEADS, kv = head >> 2;
    float qf[HEADS][8];
#pragma unroll
    for (int h = 0; h < HEADS; ++h) widen(q[(b * 8 + head + h) * 16 + l], qf[h]);
    const uint4* mine = keys + ((size_t)(b * 2 + kv) * T + blockIdx.x * 256 + (threadIdx.x >> 4)) * 16 + l;
#pragma unroll 1
    for (int it = 0; it < 16; it += 4) {
        uint4 raw[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) raw[e] = mine[(it + e) * 256];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            int t = blockIdx.x * 256 + (it + e) * 16 + (threadIdx.x >> 4);
            float k[8], s[HEADS];
            widen(raw[e], k);
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                s[h] = 0.f;
#pragma unroll
                for (int d = 0; d < 8; ++d) s[h] = __fmaf_rn(qf[h][d], k[d], s[h]);
#pragma unroll
                for (int o = 8; o; o >>= 1) s[h] += __shfl_xor_sync(~0u, s[h], o);
            }
            if (l == 0)
#pragma unroll
                for (int h = 0; h < HEADS; ++h) out[(size_t)(b * 8 + head + h) * T + t] = s[h] * scale;
        }
    }
}
K void __launch_bounds__(256) n05_a(const uint4* R q, const uint4* R keys, float* R out, int T, float scale) { scores<1>(q, keys, out, T, scale); }
K void __launch_bounds__(256) n05_b(const uint4* R q, const uint4* R keys, float* R out, int T, float scale) { scores<4>(q, keys, out, T, scale); }

// ---- 06: integral images of 32 x 32 tiles (first step of that of an image), a warp a tile, 8 tiles a block
template <int PITCH> __device__ __forceinline__ void integral(const float* R x, float* R y, int width) {
    __shared__ float tile[8][32 * PITCH];
    int lane = threadIdx.x & 31;
    float* t = tile[threadIdx.x >> 5];
    size_t at = (size_t)blockIdx.y * 32 * width + (blockIdx.x * 8 + (threadIdx.x >> 5)) * 32 + lane;
#pragma unroll 8
    for (int r = 0; r < 32; ++r) t[r * PITCH + lane] = x[at + (size_t)r * width];
    __syncwarp();
    float run = 0.f;
#pragma unroll 8
    for (int c = 0; c < 32; ++c) {  // the lane's row
        run += t[lane * PITCH + c];
        t[lane * PITCH + c] = run;
    }
    __syncwarp();
    run = 0.f;
#pragma unroll 8
    for (int r = 0; r < 32; ++r) {  // the lane's column
        run += t[r * PITCH + lane];
        y[at + (size_t)r * width] = run;
    }
}
K void __launch_bounds__(256) n06_a(const float* R x, float* R y, int width) { integral<32>(x, y, width); }
K void __launch_bounds__(256) n06_b(const float* R x, float* R y, int width) { integral<33>(x, y, width); }

// ---- 07: squared distances between 64-dimensional queries and points
K void __launch_bounds__(256) n07_a(const float* R q, const float* R p, float* R out, int np) {
    __shared__ float sq[16][33], sp[16][33];
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    int q0 = blockIdx.y * 16, p0 = blockIdx.x * 16;
    float s = 0.f;
    for (int d0 = 0; d0 < 64; d0 += 32) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int k = i * 256 + threadIdx.x;
            sq[k >> 5][k & 31] = q[(q0 + (k >> 5)) * 64 + d0 + (k & 31)];
            sp[k >> 5][k & 31] = p[(p0 + (k >> 5)) * 64 + d0 + (k & 31)];
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < 32; ++d) {
            float v = sq[ty][d] - sp[tx][d];
            s = __fmaf_rn(v, v, s);
        }
        __syncthreads();
    }
    out[(size_t)(q0 + ty) * np + p0 + tx] = s;
}
K void __launch_bounds__(256) n07_b(const float* R q, const float* R p, float* R out, int np) {
    __shared__ __align__(16) float sq[32][68], sp[32][68];
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    int q0 = blockIdx.y * 64, p0 = blockIdx.x * 64;
    float s[4][4] = {};
    for (int d0 = 0; d0 < 64; d0 += 32) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            int k = i * 256 + threadIdx.x;
            sq[k & 31][k >> 5] = q[(q0 + (k >> 5)) * 64 + d0 + (k & 31)];
            sp[k & 31][k >> 5] = p[(p0 + (k >> 5)) * 64 + d0 + (k & 31)];
        }
        __syncthreads();
#pragma unroll 8
        for (int d = 0; d < 32; ++d) {
            float4 a4 = *reinterpret_cast<const float4*>(&sq[d][ty * 4]), b4 = *reinterpret_cast<const float4*>(&sp[d][tx * 4]);
            float a[4] = {a4.x, a4.y, a4.z, a4.w}, b[4] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    float v = a[i] - b[j];
                    s[i][j] = __fmaf_rn(v, v, s[i][j]);
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        *reinterpret_cast<float4*>(out + (size_t)(q0 + ty * 4 + i) * np + p0 + tx * 4) = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
}

// ---- 08: DCT of 8 x 8 blocks, quantised, in zigzag order, one plane a coefficient; a thread a block
K void __launch_bounds__(128) n08_a(const float4* R image, float* R out, int across, int blocks) {
    int b = blockIdx.x * 128 + threadIdx.x;
    if (b >= blocks) return;
    const float4* in = image + (size_t)(b / across) * 8 * across * 2 + (b % across) * 2;
    float blk[64], tmp[64];
    for (int r = 0; r < 8; ++r) {
        float4 lo = in[r * across * 2], hi = in[r * across * 2 + 1];
        blk[r * 8] = lo.x, blk[r * 8 + 1] = lo.y, blk[r * 8 + 2] = lo.z, blk[r * 8 + 3] = lo.w;
        blk[r * 8 + 4] = hi.x, blk[r * 8 + 5] = hi.y, blk[r * 8 + 6] = hi.z, blk[r * 8 + 7] = hi.w;
    }
    for (int i = 0; i < 64; ++i) {
        int u = i >> 3, v = i & 7;
        float s = 0.f;
        for (int y = 0; y < 8; ++y) s = __fmaf_rn(c_dct[u * 8 + y], blk[y * 8 + v], s);
        tmp[i] = s;
    }
    for (int i = 0; i < 64; ++i) {
        int u = i >> 3, v = i & 7;
        float s = 0.f;
        for (int x = 0; x < 8; ++x) s = __fmaf_rn(c_dct[v * 8 + x], tmp[u * 8 + x], s);
        blk[i] = s;
    }
    for (int k = 0; k < 64; ++k) out[(size_t)k * blocks + b] = blk[c_zigzag[k]] * c_quant[k];
}
__device__ constexpr int zigzag(int k) {
    constexpr int order[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                               41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                               30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};
    return order[k];
}
K void __launch_bounds__(128) n08_b(const float4* R image, float* R out, int across, int blocks) {
    int b = blockIdx.x * 128 + threadIdx.x;
    if (b >= blocks) return;
    const float4* in = image + (size_t)(b / across) * 8 * across * 2 + (b % across) * 2;
    float blk[64];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        float4 lo = in[r * across * 2], hi = in[r * across * 2 + 1];
        blk[r * 8] = lo.x, blk[r * 8 + 1] = lo.y, blk[r * 8 + 2] = lo.z, blk[r * 8 + 3] = lo.w;
        blk[r * 8 + 4] = hi.x, blk[r * 8 + 5] = hi.y, blk[r * 8 + 6] = hi.z, blk[r * 8 + 7] = hi.w;
    }
#pragma unroll
    for (int v = 0; v < 8; ++v) {
        float t[8];
#pragma unroll
        for (int u = 0; u < 8; ++u) {
            t[u] = 0.f;
#pragma unroll
            for (int y = 0; y < 8; ++y) t[u] = __fmaf_rn(c_dct[u * 8 + y], blk[y * 8 + v], t[u]);
        }
#pragma unroll
        for (int u = 0; u < 8; ++u) blk[u * 8 + v] = t[u];
    }
#pragma unroll
    for (int u = 0; u < 8; ++u) {
        float t[8];
#pragma unroll
        for (int v = 0; v < 8; ++v) {
            t[v] = 0.f;
#pragma unroll
            for (int x = 0; x < 8; ++x) t[v] = __fmaf_rn(c_dct[v * 8 + x], blk[u * 8 + x], t[v]);
        }
#pragma unroll
        for (int v = 0; v < 8; ++v) blk[u * 8 + v] = t[v];
    }
#pragma unroll
    for (int k = 0; k < 64; ++k) out[(size_t)k * blocks + b] = blk[zigzag(k)] * c_quant[k];
}

// ---- 09: rays along z through a volume, composed from the front until nothing shines through any more
__device__ __forceinline__ void compose(float v, float density, float& through, float& light) {
    float a = v * density;
    light = __fmaf_rn(through * a, v, light);
    through = __fmaf_rn(-a, through, through);
}
K void __launch_bounds__(256) n09_a(const float* R volume, float* R out, int plane, int depth, float density) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float through = 1.f, light = 0.f;
    for (int z = 0; z < depth; ++z) {
        compose(volume[(size_t)z * plane + i], density, through, light);
        if (through < 0.02f) break;
    }
    out[i] = light;
}
K void __launch_bounds__(256) n09_b(const float* R volume, float* R out, int plane, int depth, float density) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float through = 1.f, light = 0.f;
    for (int z = 0; z < depth && through >= 0.02f; z += 8) {  // depth is a multiple of 8
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = volume[(size_t)(z + k) * plane + i];
#pragma unroll
        for (int k = 0; k < 8; ++k) compose(v[k], through >= 0.02f ? density : 0.f, through, light);
    }
    out[i] = light;
}

// ---- 10: embedding bags, 128 dimensions, sums; a warp a bag, its indices in shared memory that holds `longest` for each of the two warps
__device__ __forceinline__ void bags(const float4* R table, const int* R index, const int* R offset, float4* R out, int longest) {
    extern __shared__ int staged[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, bag = blockIdx.x * 2 + warp;
    int lo = offset[bag], len = offset[bag + 1] - lo;
    int* mine = staged + warp * longest;
    for (int k = lane; k < len; k += 32) mine[k] = index[lo + k];
    __syncwarp();
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
    for (int k = 0; k < len; ++k) {
        float4 v = table[(size_t)mine[k] * 32 + lane];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    out[bag * 32 + lane] = sum;
}
K void __launch_bounds__(64) n10_a(const float4* R table, const int* R index, const int* R offset, float4* R out, int longest) {
    bags(table, index, offset, out, longest);
}
K void __launch_bounds__(64) n10_b(const float4* R table, const int* R index, const int* R offset, float4* R out, int longest) {
    bags(table, index, offset, out, longest);
}

// ---- 11: Mandelbrot counts, one block of 1024 an SM, the picture in pieces of 1024 pixels
__device__ __forceinline__ int escape(int p, int width, float x0, float y0, float step, int most) {
    float cx = __fmaf_rn((float)(p % width), step, x0), cy = __fmaf_rn((float)(p / width), step, y0);
    float x = 0.f, y = 0.f;
    int n = 0;
    for (; n < most; ++n) {
        float xx = __fmul_rn(x, x), yy = __fmul_rn(y, y);
        if (__fadd_rn(xx, yy) > 4.f) break;
        y = __fmaf_rn(__fadd_rn(x, x), y, cy);
        x = __fadd_rn(__fsub_rn(xx, yy), cx);
    }
    return n;
}
K void __launch_bounds__(1024) n11_a(int* R out, int width, int pieces, float x0, float y0, float step, int most) {
    int each = pieces / gridDim.x;  // a band of the picture
    for (int k = 0; k < each; ++k) {
        int p = (blockIdx.x * each + k) * 1024 + threadIdx.x;
        out[p] = escape(p, width, x0, y0, step, most);
    }
}
K void __launch_bounds__(1024) n11_b(int* R out, int width, int pieces, float x0, float y0, float step, int most) {
    for (int k = blockIdx.x; k < pieces; k += gridDim.x) {
        int p = k * 1024 + threadIdx.x;
        out[p] = escape(p, width, x0, y0, step, most);
    }
}

// ---- 12: photons that scatter in a slab until they are absorbed (1 of 64 steps), 16 a thread
struct Photon {
    uint32_t state;
    float depth, path, aside;
    __device__ __forceinline__ void born(uint32_t id) {
        state = id * 0x9E3779B9u + 12345u;
        state ^= state >> 15;
        state *= 0x85EBCA6Bu;
        state ^= state >> 13;
        depth = path = aside = 0.f;
    }
    __device__ __forceinline__ uint32_t draw() {
        state = state * 747796405u + 2891336453u;
        uint32_t w = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
        return (w >> 22) ^ w;
    }
    __device__ __forceinline__ bool step() {
        uint32_t a = draw(), b = draw();
        float cosine = __fmaf_rn((float)(a >> 8), 1.f / 8388608.f, -1.f), length = __fmaf_rn((float)(b >> 8), 1.f / 16777216.f, 0.01f);
        depth = fabsf(__fmaf_rn(cosine, length, depth));
        float thick = __fmaf_rn(depth, 0.125f, 1.f);
        path = __fmaf_rn(length, thick, path);
        float sine2 = __fmaf_rn(-cosine, cosine, 1.f);
        aside = __fmaf_rn(__fmul_rn(length, length), sine2, aside);
        return (a & 63u) == 0;
    }
    __device__ __forceinline__ float score() const { return __fmaf_rn(aside, 0.5f, __fadd_rn(path, depth)); }
};
K void __launch_bounds__(256) n12_a(float* R out, uint32_t seed) {
    uint32_t threads = gridDim.x * 256, t = blockIdx.x * 256 + threadIdx.x;
    for (int k = 0; k < 16; ++k) {
        Photon p;
        p.born(seed + k * threads + t);
        while (!p.step()) {}
        out[k * threads + t] = p.score();
    }
}
K void __launch_bounds__(256) n12_b(float* R out, uint32_t seed) {
    uint32_t threads = gridDim.x * 256, t = blockIdx.x * 256 + threadIdx.x, end = t + 16 * threads;
    Photon p;
    p.born(seed + t);
    while (t < end) {
        if (p.step()) {  // the lane goes on with its next photon at once
            out[t] = p.score();
            t += threads;
            p.born(seed + t);
        }
    }
}

// ---- 13: tokens of a mixture of experts into the lists of their 16 experts; lists: 16 counts, then 16 lists of `room`
K void __launch_bounds__(256) n13_a(const int* R expert, int* lists, int room) {
    int token = blockIdx.x * 256 + threadIdx.x, e = expert[token];
    int place = atomicAdd(lists + e, 1);
    if (place < room) lists[16 + e * room + place] = token + 1;
}
K void __launch_bounds__(256) n13_b(const int* R expert, int* lists, int room) {
    __shared__ int count[16], base[16];
    if (threadIdx.x < 16) count[threadIdx.x] = 0;
    __syncthreads();
    int e[8], place[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) e[k] = expert[blockIdx.x * 2048 + k * 256 + threadIdx.x];
#pragma unroll
    for (int k = 0; k < 8; ++k) place[k] = atomicAdd(count + e[k], 1);
    __syncthreads();
    if (threadIdx.x < 16) base[threadIdx.x] = atomicAdd(lists + threadIdx.x, count[threadIdx.x]);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        int at = base[e[k]] + place[k];
        if (at < room) lists[16 + e[k] * room + at] = blockIdx.x * 2048 + k * 256 + threadIdx.x + 1;
    }
}

// ---- 14: bilateral filter in linear light, radius up to 4, tiles of 32 x 8
__device__ __forceinline__ float ex2(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ float lg2(float v) {
    float r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ float linear(float v) { return ex2(2.2f * lg2(v)); }
K void __launch_bounds__(256) n14_a(const float* R in, float* R out, int width, int height, int radius, float kspace, float krange) {
    __shared__ float tile[16][40];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, x0 = blockIdx.x * 32, y0 = blockIdx.y * 8;
    for (int k = threadIdx.x; k < 640; k += 256) {
        int x = min(max(x0 + k % 40 - 4, 0), width - 1), y = min(max(y0 + k / 40 - 4, 0), height - 1);
        tile[k / 40][k % 40] = in[y * width + x];
    }
    __syncthreads();
    float mid = linear(tile[ty + 4][tx + 4]), sum = 0.f, norm = 0.f;
    for (int dy = -radius; dy <= radius; ++dy)
        for (int dx = -radius; dx <= radius; ++dx) {
            float v = linear(tile[ty + 4 + dy][tx + 4 + dx]);
            float off = v - mid;
            float w = ex2((float)(dx * dx + dy * dy) * kspace) * ex2(off * off * krange);
            sum += w * v;
            norm += w;
        }
    out[(y0 + ty) * width + x0 + tx] = sum / norm;
}
K void __launch_bounds__(256) n14_b(const float* R in, float* R out, int width, int height, int radius, float kspace, float krange) {
    __shared__ float tile[16][40], space[9][9];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, x0 = blockIdx.x * 32, y0 = blockIdx.y * 8;
    for (int k = threadIdx.x; k < 640; k += 256) {
        int x = min(max(x0 + k % 40 - 4, 0), width - 1), y = min(max(y0 + k / 40 - 4, 0), height - 1);
        tile[k / 40][k % 40] = linear(in[y * width + x]);
    }
    if (threadIdx.x < 81) {
        int dy = threadIdx.x / 9 - 4, dx = threadIdx.x % 9 - 4;
        space[dy + 4][dx + 4] = (float)(dx * dx + dy * dy) * kspace;
    }
    __syncthreads();
    float mid = tile[ty + 4][tx + 4], sum = 0.f, norm = 0.f;
    for (int dy = -radius; dy <= radius; ++dy)
        for (int dx = -radius; dx <= radius; ++dx) {
            float v = tile[ty + 4 + dy][tx + 4 + dx];
            float off = v - mid;
            float w = ex2(off * off * krange + space[dy + 4][dx + 4]);
            sum += w * v;
            norm += w;
        }
    out[(y0 + ty) * width + x0 + tx] = sum / norm;
}

// ---- 15: group norm, channels last, its second half: statistics are there, this rank's samples begin at `first` of the whole batch
K void __launch_bounds__(256) n15_a(const float* R x, const float2* R stats, const float2* R affine, float* R y, int64_t first, int64_t pixels,
                                    int64_t channels, int64_t groups) {
    int64_t mine = (int64_t)blockIdx.x * 256 + threadIdx.x;
    int64_t i = first * pixels * channels + mine;  // in the whole batch
    int64_t sample = i / (pixels * channels) - first;
    int64_t c = i % channels;
    int64_t g = c / (channels / groups);
    float2 s = stats[sample * groups + g], a = affine[c];
    y[mine] = (x[mine] - s.x) * s.y * a.x + a.y;
}
K void __launch_bounds__(256) n15_b(const float* R x, const float2* R stats, const float2* R affine, float* R y, int shift, int groups) {
    int c = threadIdx.x, sample = blockIdx.y;  // a block a pixel
    size_t mine = ((size_t)sample * gridDim.x + blockIdx.x) * 256 + c;
    float2 s = stats[sample * groups + (c >> shift)], a = affine[c];
    y[mine] = (x[mine] - s.x) * s.y * a.x + a.y;
}

// ---- 16: Smith-Waterman scores by anti-diagonals, a block a pair: a query of 256, a subject of 512
template <bool BY_ONE> __device__ __forceinline__ void align(const uint8_t* R query, const uint8_t* R subject, int* R best, int match, int miss, int gap) {
    __shared__ int h[3][257];
    __shared__ uint8_t s[512];
    __shared__ int tops[8];
    int i = threadIdx.x, q = query[blockIdx.x * 256 + i], left = 0, top = 0;
    s[i] = subject[blockIdx.x * 512 + i];
    s[i + 256] = subject[blockIdx.x * 512 + 256 + i];
    h[0][i + 1] = h[1][i + 1] = h[2][i + 1] = 0;
    if (i == 0) h[0][0] = h[1][0] = h[2][0] = 0;
    __syncthreads();
    int *now = h[0], *before = h[1], *earlier = h[2];
    for (int d = 0; d < 767; ++d) {
        int j = d - i, v = 0;
        if (j >= 0 && j < 512) {
            v = max(max(0, earlier[i] + (s[j] == q ? match : -miss)), max(before[i], left) - gap);
            left = v;
        }
        now[i + 1] = v;
        if (!BY_ONE) top = max(top, v);
        __syncthreads();
        if (BY_ONE && i == 0) {  // look for the best on this diagonal
            int lo = max(0, d - 511), hi = min(d, 255);
            for (int k = lo; k <= hi; ++k) top = max(top, now[k + 1]);
        }
        int* free = earlier;
        earlier = before;
        before = now;
        now = free;
    }
    if (!BY_ONE) {
        for (int o = 16; o; o >>= 1) top = max(top, __shfl_xor_sync(~0u, top, o));
        if ((i & 31) == 0) tops[i >> 5] = top;
        __syncthreads();
        if (i == 0)
            for (int k = 1; k < 8; ++k) top = max(top, tops[k]);
    }
    if (i == 0) best[blockIdx.x] = top;
}
K void __launch_bounds__(256) n16_a(const uint8_t* R query, const uint8_t* R subject, int* R best, int match, int miss, int gap) {
    align<true>(query, subject, best, match, miss, gap);
}
K void __launch_bounds__(256) n16_b(const uint8_t* R query, const uint8_t* R subject, int* R best, int match, int miss, int gap) {
    align<false>(query, subject, best, match, miss, gap);
}

// ---- 17: a step of Adam
__device__ __forceinline__ void adam(float& p, float g, float& m, float& v, float rate, float b1, float b2, float eps, float c1, float c2) {
    m = b1 * m + (1.f - b1) * g;
    v = b2 * v + (1.f - b2) * g * g;
    p -= rate * (m * c1) / (sqrtf(v * c2) + eps);
}
K void __launch_bounds__(256) n17_a(float4* R p, const float4* R g, float4* R m, float4* R v, int n, float rate, float b1, float b2, float eps, float c1,
                                    float c2) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n / 4) return;
    float4 P = p[i], G = g[i], M = m[i], V = v[i];
    adam(P.x, G.x, M.x, V.x, rate, b1, b2, eps, c1, c2);
    adam(P.y, G.y, M.y, V.y, rate, b1, b2, eps, c1, c2);
    adam(P.z, G.z, M.z, V.z, rate, b1, b2, eps, c1, c2);
    adam(P.w, G.w, M.w, V.w, rate, b1, b2, eps, c1, c2);
    p[i] = P;
    m[i] = M;
    v[i] = V;
}

// ---- 18: gravity of n bodies, two of them a thread, an eighth of the others a row of the grid: out[part][axis][body]
__device__ __forceinline__ float rsq(float v) {
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
K void __launch_bounds__(128) n18_a(const float4* R body, float* R out, int n, float soft) {
    __shared__ float4 tile[128];
    int i = blockIdx.x * 256 + threadIdx.x, each = n / gridDim.y, first = blockIdx.y * each;
    float4 me[2] = {body[i], body[i + 128]};
    float ax[2] = {}, ay[2] = {}, az[2] = {};
    for (int j0 = first; j0 < first + each; j0 += 128) {
        tile[threadIdx.x] = body[j0 + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 128; ++j) {
            float4 o = tile[j];
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                float dx = o.x - me[k].x, dy = o.y - me[k].y, dz = o.z - me[k].z;
                float r = rsq(__fmaf_rn(dx, dx, __fmaf_rn(dy, dy, __fmaf_rn(dz, dz, soft))));
                float f = (o.w * r) * (r * r);
                ax[k] = __fmaf_rn(f, dx, ax[k]);
                ay[k] = __fmaf_rn(f, dy, ay[k]);
                az[k] = __fmaf_rn(f, dz, az[k]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        float* to = out + (size_t)blockIdx.y * 3 * n + i + 128 * k;
        to[0] = ax[k];
        to[n] = ay[k];
        to[2 * n] = az[k];
    }
}
