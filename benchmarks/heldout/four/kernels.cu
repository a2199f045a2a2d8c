// Held-out kernels: pNN_a has a planted cause (or sits at a roof), pNN_b computes the same without it.
#include <stdint.h>
#include <utility>
#define K extern "C" __global__
#define R __restrict__

__constant__ float c_tone[768];

__device__ __forceinline__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait_all_but() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// ---- 01: expert layer in decoding, 8 tokens times a weight matrix [k][n], tiles of 8 x 128 weights; grid (n / 128, parts of k)
template <int STAGES> __device__ __forceinline__ void expert(const float* R w, const float* R x, float* R y, int rows, int n) {
    extern __shared__ float4 pipe[];  // of each stage 8 x 128 weights, then 8 x 8 activations
    const int stage = 272, t = threadIdx.x, from = blockIdx.y * rows, tiles = rows / 8;
    const float* wt = w + (size_t)(from + (t >> 5)) * n + blockIdx.x * 128 + (t & 31) * 4;
    const float* xt = x + (size_t)from * 8 + t * 4;
    auto fetch = [&](int tile) {
        if (tile < tiles) {
            float4* s = pipe + tile % STAGES * stage;
            copy16(s + t, wt + (size_t)tile * 8 * n);
            copy16(s + 128 + t, wt + (size_t)(tile * 8 + 4) * n);
            if (t < 16) copy16(s + 256 + t, xt + tile * 64);
        }
        commit();
    };
    float acc[8] = {};
    for (int s = 0; s < STAGES - 1; ++s) fetch(s);
    for (int tile = 0; tile < tiles; ++tile) {
        wait_all_but<STAGES - 2>();
        __syncthreads();
        fetch(tile + STAGES - 1);
        const float4* s = pipe + tile % STAGES * stage;
#pragma unroll
        for (int r = 0; r < 8; ++r) {
            float v = reinterpret_cast<const float*>(s)[r * 128 + t];
            float4 p = s[256 + 2 * r], q = s[257 + 2 * r];
            acc[0] = fmaf(v, p.x, acc[0]), acc[1] = fmaf(v, p.y, acc[1]), acc[2] = fmaf(v, p.z, acc[2]), acc[3] = fmaf(v, p.w, acc[3]);
            acc[4] = fmaf(v, q.x, acc[4]), acc[5] = fmaf(v, q.y, acc[5]), acc[6] = fmaf(v, q.z, acc[6]), acc[7] = fmaf(v, q.w, acc[7]);
        }
    }
#pragma unroll
    for (int b = 0; b < 8; ++b) y[(size_t)(blockIdx.y * 8 + b) * n + blockIdx.x * 128 + t] = acc[b];
}
K void __launch_bounds__(128) p01_a(const float* R w, const float* R x, float* R y, int rows, int n) { expert<2>(w, x, y, rows, n); }
K void __launch_bounds__(128) p01_b(const float* R w, const float* R x, float* R y, int rows, int n) { expert<8>(w, x, y, rows, n); }

// ---- 02: Monte-Carlo paths of the Heston model, four a thread; mean of each path
struct Path {
    uint32_t state;
    float s, v, sum;
};
__device__ __forceinline__ Path start(uint32_t id) {
    uint32_t h = id * 0x9E3779B9u;
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    return {h, 1.f, 0.04f, 0.f};
}
__device__ __forceinline__ void advance(Path& p, float dt, float xi) {
    p.state = p.state * 1664525u + 1013904223u;
    float z = __uint_as_float(p.state >> 9 | 0x3F800000u) - 1.5f, root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(fmaxf(p.v, 0.f)));
    float w = root * z;
    p.s = __fmaf_rn(p.s, w, p.s);
    p.v = __fmaf_rn(xi, w, __fmaf_rn(0.04f - p.v, dt, p.v));
    p.sum += p.s;
}
K void __launch_bounds__(128) p02_a(float* R y, int steps, float dt, float xi) {
    int i = blockIdx.x * 128 + threadIdx.x, all = gridDim.x * 128;
#pragma unroll 1
    for (int k = 0; k < 4; ++k) {
        Path p = start(k * all + i);
        for (int t = 0; t < steps; ++t) advance(p, dt, xi);
        y[k * all + i] = p.sum / steps;
    }
}
K void __launch_bounds__(128) p02_b(float* R y, int steps, float dt, float xi) {
    int i = blockIdx.x * 128 + threadIdx.x, all = gridDim.x * 128;
    Path p[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) p[k] = start(k * all + i);
    for (int t = 0; t < steps; ++t) {
#pragma unroll
        for (int k = 0; k < 4; ++k) advance(p[k], dt, xi);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) y[k * all + i] = p[k].sum / steps;
}

// ---- 03: lattice Boltzmann D2Q9, pull and BGK collision, periodic
template <bool AOS> __device__ __forceinline__ void lattice(const float* R f, float* R g, int w, int h, float omega) {
    const int ex[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, ey[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    const float wt[9] = {4.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 36, 1.f / 36, 1.f / 36, 1.f / 36};
    int x = blockIdx.x * 256 + threadIdx.x, y = blockIdx.y, cells = w * h;
    float v[9], rho = 0.f, ux = 0.f, uy = 0.f;
#pragma unroll
    for (int q = 0; q < 9; ++q) {
        int cell = ((y - ey[q]) & (h - 1)) * w + ((x - ex[q]) & (w - 1));
        v[q] = AOS ? f[cell * 9 + q] : f[q * cells + cell];
        rho += v[q];
        ux += ex[q] * v[q];
        uy += ey[q] * v[q];
    }
    float inv = 1.f / rho;
    ux *= inv;
    uy *= inv;
    float base = 1.f - 1.5f * (ux * ux + uy * uy);
    int cell = y * w + x;
#pragma unroll
    for (int q = 0; q < 9; ++q) {
        float eu = ex[q] * ux + ey[q] * uy;
        float eq = wt[q] * rho * (base + 3.f * eu + 4.5f * eu * eu);
        g[AOS ? cell * 9 + q : q * cells + cell] = v[q] + omega * (eq - v[q]);
    }
}
K void __launch_bounds__(256) p03_a(const float* R f, float* R g, int w, int h, float omega) { lattice<true>(f, g, w, h, omega); }
K void __launch_bounds__(256) p03_b(const float* R f, float* R g, int w, int h, float omega) { lattice<false>(f, g, w, h, omega); }

// ---- 04: residual addition of two int8 tensors with fixed-point scales
__device__ __forceinline__ int add_q(int a, int b, int ma, int mb) { return min(max((a * ma + b * mb + 8192) >> 14, -128), 127); }
K void __launch_bounds__(256) p04_a(const int8_t* R a, const int8_t* R b, int8_t* R y, int ma, int mb, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = (int8_t)add_q(a[i], b[i], ma, mb);
}
__device__ __forceinline__ uint32_t add_q4(uint32_t a, uint32_t b, int ma, int mb) {
    uint32_t r = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) r |= (uint32_t)(add_q((int8_t)(a >> 8 * k), (int8_t)(b >> 8 * k), ma, mb) & 255) << 8 * k;
    return r;
}
K void __launch_bounds__(256) p04_b(const uint4* R a, const uint4* R b, uint4* R y, int ma, int mb, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n / 16) return;
    uint4 p = a[i], q = b[i];
    y[i] = make_uint4(add_q4(p.x, q.x, ma, mb), add_q4(p.y, q.y, ma, mb), add_q4(p.z, q.z, ma, mb), add_q4(p.w, q.w, ma, mb));
}

// ---- 05: luminance of an RGBA image after a tone curve for each channel
__device__ __forceinline__ float luminance(uint32_t px, const float* tone) {
    return 0.2126f * tone[px & 255] + 0.7152f * tone[256 + (px >> 8 & 255)] + 0.0722f * tone[512 + (px >> 16 & 255)];
}
K void __launch_bounds__(256) p05_a(const uint4* R px, float4* R y, const float* R tone) {
    for (int k = 0; k < 4; ++k) {
        int i = blockIdx.x * 1024 + k * 256 + threadIdx.x;
        uint4 p = px[i];
        y[i] = make_float4(luminance(p.x, c_tone), luminance(p.y, c_tone), luminance(p.z, c_tone), luminance(p.w, c_tone));
    }
}
K void __launch_bounds__(256) p05_b(const uint4* R px, float4* R y, const float* R tone) {
    __shared__ float tab[768];
    for (int k = threadIdx.x; k < 768; k += 256) tab[k] = tone[k];
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
        int i = blockIdx.x * 1024 + k * 256 + threadIdx.x;
        uint4 p = px[i];
        y[i] = make_float4(luminance(p.x, tab), luminance(p.y, tab), luminance(p.z, tab), luminance(p.w, tab));
    }
}

// ---- 06: implied volatility of European calls by Newton steps on the Black-Scholes price
K void __launch_bounds__(256) p06_a(const float* R spot, const float* R strike, const float* R years, const float* R price, float* R vol, float rate) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float s = spot[i], x = strike[i], t = years[i], target = price[i], root = sqrtf(t), sigma = 0.3, paid = x * exp(-rate * t), m = log(s / x);
    auto cnd = [](float d, float& density) {
        float k = 1.0 / (1.0 + 0.2316419 * fabs(d));
        density = 0.3989422804 * exp(-0.5 * d * d);
        float c = density * k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))));
        return d > 0 ? 1.0 - c : c;
    };
    for (int k = 0; k < 8; ++k) {
        float d1 = (m + (rate + 0.5 * sigma * sigma) * t) / (sigma * root), d2 = d1 - sigma * root, density, unused;
        float value = s * cnd(d1, density) - paid * cnd(d2, unused);
        sigma -= (value - target) / (s * root * density + 1e-6);
        sigma = fminf(fmaxf(sigma, 0.02f), 2.0f);
    }
    vol[i] = sigma;
}
K void __launch_bounds__(256) p06_b(const float* R spot, const float* R strike, const float* R years, const float* R price, float* R vol, float rate) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float s = spot[i], x = strike[i], t = years[i], target = price[i], root = sqrtf(t), sigma = 0.3f, paid = x * expf(-rate * t), m = logf(s / x);
    auto cnd = [](float d, float& density) {
        float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
        density = 0.3989422804f * expf(-0.5f * d * d);
        float c = density * k * (0.319381530f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
        return d > 0 ? 1.0f - c : c;
    };
    for (int k = 0; k < 8; ++k) {
        float d1 = (m + (rate + 0.5f * sigma * sigma) * t) / (sigma * root), d2 = d1 - sigma * root, density, unused;
        float value = s * cnd(d1, density) - paid * cnd(d2, unused);
        sigma -= (value - target) / (s * root * density + 1e-6f);
        sigma = fminf(fmaxf(sigma, 0.02f), 2.0f);
    }
    vol[i] = sigma;
}

// ---- 07: Ising model, Metropolis update of the sites of one colour of the checkerboard, Philox 4x32-10
__device__ __forceinline__ float philox(uint32_t site, uint32_t step, uint32_t seed) {
    uint32_t c0 = site, c1 = step, c2 = 0, c3 = 0, k0 = seed, k1 = 0xCAFEu;
#pragma unroll
    for (int r = 0; r < 10; ++r) {
        uint32_t h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (c0 >> 8) * (1.f / 16777216.f);
}
__device__ __forceinline__ void flip(const int8_t* R s, int8_t* R y, int x, int r, int w, int h, uint32_t step, uint32_t seed, float beta) {
    int i = r * w + x, up = ((r - 1) & (h - 1)) * w, down = ((r + 1) & (h - 1)) * w, mid = r * w;
    int around = s[up + x] + s[down + x] + s[mid + ((x - 1) & (w - 1))] + s[mid + ((x + 1) & (w - 1))], me = s[i];
    float u = philox(i, step, seed);
    y[i] = (int8_t)(u < __expf(-2.f * beta * (me * around)) ? -me : me);
}
K void __launch_bounds__(256) p07_a(const int8_t* R s, int8_t* R y, int w, int h, int colour, uint32_t step, uint32_t seed, float beta) {
    int x = blockIdx.x * 256 + threadIdx.x, r = blockIdx.y;
    if (((x + r) & 1) == colour) flip(s, y, x, r, w, h, step, seed, beta);
}
K void __launch_bounds__(256) p07_b(const int8_t* R s, int8_t* R y, int w, int h, int colour, uint32_t step, uint32_t seed, float beta) {
    int r = blockIdx.y, x = 2 * (blockIdx.x * 256 + threadIdx.x) + ((r + colour) & 1);
    flip(s, y, x, r, w, h, step, seed, beta);
}

// ---- 08: Cholesky factors of 32 x 32 matrices, a warp a matrix, a lane a row
template <int LD> __device__ __forceinline__ void cholesky(const float* R a, float* R y) {
    __shared__ float mem[4 * 32 * LD];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    size_t at = ((size_t)blockIdx.x * 4 + warp) * 1024;
    float* m = mem + warp * 32 * LD;
#pragma unroll 8
    for (int r = 0; r < 32; ++r) m[r * LD + lane] = a[at + r * 32 + lane];
    __syncwarp();
    for (int j = 0; j < 32; ++j) {
        float s = m[lane * LD + j];
        for (int k = 0; k < j; ++k) s -= m[lane * LD + k] * m[j * LD + k];
        float d = __shfl_sync(~0u, s, j);
        if (lane >= j) m[lane * LD + j] = s * rsqrtf(d);
        __syncwarp();
    }
#pragma unroll 8
    for (int r = 0; r < 32; ++r) y[at + r * 32 + lane] = lane <= r ? m[r * LD + lane] : 0.f;
}
K void __launch_bounds__(128) p08_a(const float* R a, float* R y) { cholesky<32>(a, y); }
K void __launch_bounds__(128) p08_b(const float* R a, float* R y) { cholesky<33>(a, y); }

// ---- 09: 5 x 5 median of an image
K void __launch_bounds__(256) p09_a(const float* R img, float* R y, int w, int h, int side) {
    float v[49];  // up to 7 x 7
    int x = blockIdx.x * 32 + (threadIdx.x & 31), r = blockIdx.y * 8 + (threadIdx.x >> 5), n = 0;
    for (int dy = -side / 2; dy <= side / 2; ++dy)
        for (int dx = -side / 2; dx <= side / 2; ++dx) v[n++] = img[min(max(r + dy, 0), h - 1) * w + min(max(x + dx, 0), w - 1)];
    for (int i = 0; i <= n / 2; ++i)
        for (int j = i + 1; j < n; ++j) {
            float p = v[i], q = v[j];
            v[i] = fminf(p, q);
            v[j] = fmaxf(p, q);
        }
    y[r * w + x] = v[n / 2];
}
template <int SIDE> __device__ __forceinline__ void median(const float* R img, float* R y, int w, int h) {
    const int n = SIDE * SIDE;
    float v[n];
    int x = blockIdx.x * 32 + (threadIdx.x & 31), r = blockIdx.y * 8 + (threadIdx.x >> 5);
#pragma unroll
    for (int k = 0; k < n; ++k) v[k] = img[min(max(r + k / SIDE - SIDE / 2, 0), h - 1) * w + min(max(x + k % SIDE - SIDE / 2, 0), w - 1)];
#pragma unroll
    for (int i = 0; i <= n / 2; ++i)
#pragma unroll
        for (int j = i + 1; j < n; ++j) {
            float p = v[i], q = v[j];
            v[i] = fminf(p, q);
            v[j] = fmaxf(p, q);
        }
    y[r * w + x] = v[n / 2];
}
K void __launch_bounds__(256) p09_b(const float* R img, float* R y, int w, int h, int side) { median<5>(img, y, w, h); }

// ---- 10: merge of two sorted arrays: each element looks for its place in the other, first among the last elements of its 1024 chunks
__device__ __forceinline__ void merge(const float* R p, const float* R q, const float* R last, float* R y, int n, int chunks, int each) {
    extern __shared__ float fence[];
    const float *from = blockIdx.y ? q : p, *in = blockIdx.y ? p : q;
    bool second = blockIdx.y;
    for (int k = threadIdx.x; k < chunks; k += 128) fence[k] = last[(second ? 0 : chunks) + k];
    __syncthreads();
    int len = n / chunks;
#pragma unroll 1
    for (int e = 0; e < each; ++e) {
        int i = (blockIdx.x * each + e) * 128 + threadIdx.x, lo = 0, hi = chunks;
        float x = from[i];
        while (lo < hi) {
            int mid = (lo + hi) >> 1;
            float v = fence[mid];
            if (second ? v <= x : v < x) lo = mid + 1;
            else hi = mid;
        }
        lo *= len;
        hi = min(lo + len, n);
        while (lo < hi) {
            int mid = (lo + hi) >> 1;
            float v = in[mid];
            if (second ? v <= x : v < x) lo = mid + 1;
            else hi = mid;
        }
        y[i + lo] = x;
    }
}
K void __launch_bounds__(128) p10_a(const float* R p, const float* R q, const float* R last, float* R y, int n, int chunks, int each) { merge(p, q, last, y, n, chunks, each); }
K void __launch_bounds__(128) p10_b(const float* R p, const float* R q, const float* R last, float* R y, int n, int chunks, int each) { merge(p, q, last, y, n, chunks, each); }

// ---- 11: nearest hit of 8 rays a thread with 1024 spheres (x, y, z, radius squared), camera at the origin
__device__ __forceinline__ float square_root(float v) {
    float r;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
template <int THREADS> __device__ __forceinline__ void rays(const float4* R spheres, float* R y, int w, int h) {
    __shared__ float4 ball[1024];
    for (int k = threadIdx.x; k < 1024; k += THREADS) {
        float4 s = spheres[k];
        ball[k] = make_float4(s.x, s.y, s.z, s.w - (s.x * s.x + s.y * s.y + s.z * s.z));
    }
    __syncthreads();
    float dx[8], dy[8], dz[8], best[8];
    int first = blockIdx.x * THREADS * 8 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        int i = first + k * THREADS;
        float px = (i % w + 0.5f) / w * 2.f - 1.f, py = (i / w + 0.5f) / h * 2.f - 1.f, inv = rsqrtf(px * px + py * py + 1.f);
        dx[k] = px * inv, dy[k] = py * inv, dz[k] = inv, best[k] = 100.f;
    }
#pragma unroll 2
    for (int j = 0; j < 1024; ++j) {
        float4 s = ball[j];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            float b = fmaf(s.x, dx[k], fmaf(s.y, dy[k], s.z * dz[k])), d = fmaf(b, b, s.w);
            if (d > 0.f) best[k] = fminf(best[k], b - square_root(d));
        }
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) y[first + k * THREADS] = best[k];
}
K void __launch_bounds__(1024, 1) p11_a(const float4* R spheres, float* R y, int w, int h) { rays<1024>(spheres, y, w, h); }
K void __launch_bounds__(128) p11_b(const float4* R spheres, float* R y, int w, int h) { rays<128>(spheres, y, w, h); }

// ---- 12: charge of a bunch of particles on a line of 512 cells, in fixed point, shared between two grid points
K void __launch_bounds__(256) p12_a(const uint4* R pos, uint32_t* charge) {
    for (int k = 0; k < 8; ++k) {
        uint4 p = pos[blockIdx.x * 2048 + k * 256 + threadIdx.x];
        uint32_t v[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            uint32_t cell = v[e] >> 23, part = v[e] >> 15 & 255;
            atomicAdd(charge + cell, 256 - part);
            atomicAdd(charge + cell + 1, part);
        }
    }
}
K void __launch_bounds__(256) p12_b(const uint4* R pos, uint32_t* charge) {
    __shared__ uint32_t own[513];
    for (int c = threadIdx.x; c < 513; c += 256) own[c] = 0;
    __syncthreads();
    for (int k = 0; k < 8; ++k) {
        uint4 p = pos[blockIdx.x * 2048 + k * 256 + threadIdx.x];
        uint32_t v[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            uint32_t cell = v[e] >> 23, part = v[e] >> 15 & 255;
            atomicAdd(own + cell, 256 - part);
            atomicAdd(own + cell + 1, part);
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < 513; c += 256)
        if (own[c]) atomicAdd(charge + c, own[c]);
}

// ---- 13: exponential moving average along time, a thread a channel
K void __launch_bounds__(128) p13_a(const float* x, float* y, int channels, int steps, float alpha) {
    int c = blockIdx.x * 128 + threadIdx.x;
    float v = x[c];
    for (int t = 0; t < steps; ++t) {
        v += alpha * (x[(size_t)t * channels + c] - v);
        y[(size_t)t * channels + c] = v;
    }
}
K void __launch_bounds__(128) p13_b(const float* R x, float* R y, int channels, int steps, float alpha) {
    int c = blockIdx.x * 128 + threadIdx.x;
    float v = x[c];
    for (int t = 0; t < steps; t += 8) {
        float in[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) in[k] = x[(size_t)(t + k) * channels + c];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            v += alpha * (in[k] - v);
            y[(size_t)(t + k) * channels + c] = v;
        }
    }
}

// ---- 14: star of radius 4 in three dimensions; the input has 4 more planes and rows on each side, and 32 more columns
K void __launch_bounds__(256) p14_a(const float* R f, float* R g, int pitch, int plane, float c0, float c1, float c2, float c3, float c4) {
    int x = blockIdx.x * 32 + (threadIdx.x & 31), y = blockIdx.y * 8 + (threadIdx.x >> 5), z = blockIdx.z;
    int w = gridDim.x * 32, h = gridDim.y * 8;
    const float c[5] = {c0, c1, c2, c3, c4};
    const float* p = f + (size_t)(z + 4) * plane + (y + 4) * pitch + x + 32;
    float s = c[0] * p[0];
#pragma unroll
    for (int k = 1; k <= 4; ++k) {
        s += c[k] * (p[-k] + p[k]);
        s += c[k] * (p[-k * pitch] + p[k * pitch]);
        s += c[k] * (p[-k * plane] + p[k * plane]);
    }
    g[((size_t)z * h + y) * w + x] = s;
}
K void __launch_bounds__(512) p14_b(const float* R f, float* R g, int pitch, int plane, float c0, float c1, float c2, float c3, float c4) {
    __shared__ float tile[2][24][40];
    const int depth = 48;
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, x = blockIdx.x * 32 + tx, y = blockIdx.y * 16 + ty, z0 = blockIdx.z * depth;
    int w = gridDim.x * 32, h = gridDim.y * 16;
    const float c[5] = {c0, c1, c2, c3, c4};
    const float* p = f + (size_t)(z0 + 4) * plane + (y + 4) * pitch + x + 32;  // at the point, in the plane of the step
    float q[9];                                                                // 4 planes before to 4 planes behind
#pragma unroll
    for (int k = 0; k < 8; ++k) q[k + 1] = p[(k - 4) * plane];
    for (int z = 0; z < depth; ++z, p += plane) {
#pragma unroll
        for (int k = 0; k < 8; ++k) q[k] = q[k + 1];
        q[8] = p[4 * plane];
        float(*t)[40] = tile[z & 1];
        t[ty + 4][tx + 4] = q[4];
        if (ty < 4) t[ty][tx + 4] = p[-4 * pitch];
        if (ty >= 12) t[ty + 8][tx + 4] = p[4 * pitch];
        if (tx < 4) t[ty + 4][tx] = p[-4];
        if (tx >= 28) t[ty + 4][tx + 8] = p[4];
        __syncthreads();
        float s = c[0] * q[4];
#pragma unroll
        for (int k = 1; k <= 4; ++k) {
            s += c[k] * (t[ty + 4][tx + 4 - k] + t[ty + 4][tx + 4 + k]);
            s += c[k] * (t[ty + 4 - k][tx + 4] + t[ty + 4 + k][tx + 4]);
            s += c[k] * (q[4 - k] + q[4 + k]);
        }
        g[((size_t)(z0 + z) * h + y) * w + x] = s;
    }
}

// ---- 15: products of many pairs of 32 x 32 matrices
K void __launch_bounds__(1024) p15_a(const float* R a, const float* R b, float* R y) {
    size_t at = (size_t)blockIdx.x * 1024;
    int i = threadIdx.x >> 5, j = threadIdx.x & 31;
    float s = 0.f;
#pragma unroll
    for (int k = 0; k < 32; ++k) s = fmaf(a[at + i * 32 + k], b[at + k * 32 + j], s);
    y[at + i * 32 + j] = s;
}
K void __launch_bounds__(256) p15_b(const float4* R a, const float4* R b, float4* R y) {
    size_t at = ((size_t)blockIdx.x * 4 + (threadIdx.x >> 6)) * 256;  // 64 threads a matrix, 4 x 4 results a thread
    int i = (threadIdx.x & 63) >> 3, j = threadIdx.x & 7;
    float acc[4][4] = {};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        float4 p[4], q[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) p[e] = a[at + (i * 4 + e) * 8 + k], q[e] = b[at + (k * 4 + e) * 8 + j];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float l[4] = {p[e].x, p[e].y, p[e].z, p[e].w};
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                acc[e][0] = fmaf(l[m], q[m].x, acc[e][0]);
                acc[e][1] = fmaf(l[m], q[m].y, acc[e][1]);
                acc[e][2] = fmaf(l[m], q[m].z, acc[e][2]);
                acc[e][3] = fmaf(l[m], q[m].w, acc[e][3]);
            }
        }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) y[at + (i * 4 + e) * 8 + j] = make_float4(acc[e][0], acc[e][1], acc[e][2], acc[e][3]);
}

// ---- 16: rates of 2048 reactions in 16 groups, summed by group: a warp a group, two cells a lane; exponent a polynomial of degree 7
__host__ __device__ constexpr float coefficient(uint32_t id) {
    id ^= id >> 16;
    id *= 0x7FEB352Du;
    id ^= id >> 15;
    id *= 0x846CA68Bu;
    id ^= id >> 16;
    return ((int)(id & 1023) - 512) * (1.f / 4096);
}
template <int ID> struct Coefficient {
    static constexpr float value = coefficient(ID);
};
__device__ __forceinline__ float power(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
template <int REACTION> __device__ __forceinline__ float generated_rate(float x) {
    float v = Coefficient<REACTION * 8>::value;
    v = fmaf(v, x, Coefficient<REACTION * 8 + 1>::value);
    v = fmaf(v, x, Coefficient<REACTION * 8 + 2>::value);
    v = fmaf(v, x, Coefficient<REACTION * 8 + 3>::value);
    v = fmaf(v, x, Coefficient<REACTION * 8 + 4>::value);
    v = fmaf(v, x, Coefficient<REACTION * 8 + 5>::value);
    v = fmaf(v, x, Coefficient<REACTION * 8 + 6>::value);
    v = fmaf(v, x, Coefficient<REACTION * 8 + 7>::value);
    return power(v);
}
template <int GROUP, int... N> __device__ __forceinline__ void generated_group(const float* R x, float* R y, int cells, std::integer_sequence<int, N...>) {
    for (int c = blockIdx.x * 64 + (threadIdx.x & 31); c < cells; c += gridDim.x * 64) {
        float x0 = x[c], x1 = x[c + 32], s0 = 0.f, s1 = 0.f;
        ((s0 += generated_rate<GROUP * 128 + N>(x0), s1 += generated_rate<GROUP * 128 + N>(x1)), ...);
        y[GROUP * cells + c] = s0;
        y[GROUP * cells + c + 32] = s1;
    }
}
K void __launch_bounds__(512) p16_a(const float* R x, float* R y, const float4* R table, int cells) {
    std::make_integer_sequence<int, 128> all;
    switch (threadIdx.x >> 5) {
#define GROUP(g) \
    case g: generated_group<g>(x, y, cells, all); break;
        GROUP(0) GROUP(1) GROUP(2) GROUP(3) GROUP(4) GROUP(5) GROUP(6) GROUP(7) GROUP(8) GROUP(9) GROUP(10) GROUP(11) GROUP(12) GROUP(13) GROUP(14) GROUP(15)
    }
}
K void __launch_bounds__(512) p16_b(const float* R x, float* R y, const float4* R table, int cells) {
    extern __shared__ float4 coef[];
    for (int k = threadIdx.x; k < 4096; k += 512) coef[k] = table[k];
    __syncthreads();
    int group = threadIdx.x >> 5;
    for (int c = blockIdx.x * 64 + (threadIdx.x & 31); c < cells; c += gridDim.x * 64) {
        float x0 = x[c], x1 = x[c + 32], s0 = 0.f, s1 = 0.f;
#pragma unroll 4
        for (int r = group * 128; r < group * 128 + 128; ++r) {
            float4 p = coef[2 * r], q = coef[2 * r + 1];
            float v0 = fmaf(p.x, x0, p.y), v1 = fmaf(p.x, x1, p.y);
            v0 = fmaf(v0, x0, p.z), v1 = fmaf(v1, x1, p.z);
            v0 = fmaf(v0, x0, p.w), v1 = fmaf(v1, x1, p.w);
            v0 = fmaf(v0, x0, q.x), v1 = fmaf(v1, x1, q.x);
            v0 = fmaf(v0, x0, q.y), v1 = fmaf(v1, x1, q.y);
            v0 = fmaf(v0, x0, q.z), v1 = fmaf(v1, x1, q.z);
            v0 = fmaf(v0, x0, q.w), v1 = fmaf(v1, x1, q.w);
            s0 += power(v0);
            s1 += power(v1);
        }
        y[group * cells + c] = s0;
        y[group * cells + c + 32] = s1;
    }
}

// ---- 17: pointwise part of an LSTM cell, gates one after another (a roof)
__device__ __forceinline__ float sigmoid(float v) { return __fdividef(1.f, 1.f + __expf(-v)); }
__device__ __forceinline__ float fast_tanh(float v) { return 2.f * sigmoid(2.f * v) - 1.f; }
__device__ __forceinline__ void cell_step(float i, float f, float g, float o, float& c, float& h) {
    c = sigmoid(f) * c + sigmoid(i) * fast_tanh(g);
    h = sigmoid(o) * fast_tanh(c);
}
K void __launch_bounds__(256) p17_a(const float4* R gates, const float4* R before, float4* R y, int n4) {
    int t = blockIdx.x * 256 + threadIdx.x;
    float4 i = gates[t], f = gates[n4 + t], g = gates[2 * n4 + t], o = gates[3 * n4 + t], c = before[t], h;
    cell_step(i.x, f.x, g.x, o.x, c.x, h.x);
    cell_step(i.y, f.y, g.y, o.y, c.y, h.y);
    cell_step(i.z, f.z, g.z, o.z, c.z, h.z);
    cell_step(i.w, f.w, g.w, o.w, c.w, h.w);
    y[t] = c;
    y[n4 + t] = h;
}

// ---- 18: a bank of damped oscillators in coupled form, four a thread (a roof)
K void __launch_bounds__(256) p18_a(const float2* R turn, const float2* R from, float* R y, int steps, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float c[4], s[4], u[4], v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        float2 p = turn[k * n + i], q = from[k * n + i];
        c[k] = p.x, s[k] = p.y, u[k] = q.x, v[k] = q.y;
    }
#pragma unroll 8
    for (int t = 0; t < steps; ++t) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float w = u[k] * c[k] - v[k] * s[k];
            v[k] = u[k] * s[k] + v[k] * c[k];
            u[k] = w;
        }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) y[k * n + i] = u[k] + v[k];
}
