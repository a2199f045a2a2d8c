// Kernels for the principles that a diagnosis follows, each with a second version or a second
// shape. Without arguments all are launched once; `principles copy tiles` launches those of these
// groups. Grids are cut for 132 multiprocessors. Everything that is profiled lies between profiler
// start and stop.
#include "check.cuh"
#include <cuda_profiler_api.h>

#define SMS 132
#define FLOATS (1 << 26)  // 256 MiB, four times the L2
#define LINKS (1 << 20)

// ---- chains: the FP32 pipe, with a short loop body and with a long one
template <int UNROLL>
__global__ void __launch_bounds__(256) chains(float* y, float a, float b, int rounds) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    float v0 = y[i], v1 = v0 + 1.f, v2 = v0 + 2.f, v3 = v0 + 3.f;
#pragma unroll UNROLL
    for (int k = 0; k < rounds; ++k) {
        v0 = fmaf(v0, a, b);
        v1 = fmaf(v1, a, b);
        v2 = fmaf(v2, a, b);
        v3 = fmaf(v3, a, b);
    }
    y[i] = v0 + v1 + v2 + v3;
}

// ---- copy: device memory, every value and every second value
__global__ void copy_all(const float4* __restrict__ x, float4* __restrict__ y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

__global__ void copy_second(const float* __restrict__ x, float* __restrict__ y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[2 * (size_t)i];
}

// ---- read: one load in flight a thread; the dynamic shared memory sets how many blocks are
// resident
__global__ void __launch_bounds__(256)
    read_steps(const float4* __restrict__ x, float* out, int count) {
    float sum = 0.f;
#pragma unroll 1
    for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
        const float4 v = x[i];
        sum += v.x + v.y + v.z + v.w;
    }
    out[blockIdx.x * 256 + threadIdx.x] = sum;
}

// ---- convert: conversions and exponentials on the special function unit, and the same range by
// FMA
__global__ void __launch_bounds__(256) convert_units(float* y, int rounds) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    float v = y[i], w = v + 0.5f;
#pragma unroll 4
    for (int k = 0; k < rounds; ++k) {
        v = __ll2float_rn((long long)__float2uint_rn(v * 9.f) + k) * 1e-4f + exp2f(w * -0.5f);
        w = __ll2float_rn((long long)__float2uint_rn(w * 7.f) + k) * 1e-4f + __sinf(v);
    }
    y[i] = v + w;
}

__global__ void __launch_bounds__(256) convert_bits(float* y, int rounds) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    float v = y[i], w = v + 0.5f;
#pragma unroll 4
    for (int k = 0; k < rounds; ++k) {
        const float a = (v * 9.f + 12582912.f) - 12582912.f + k,
                    b = (w * 7.f + 12582912.f) - 12582912.f + k;
        v = a * 1e-4f + (1.f + w * (-0.3466f + w * (0.06f - w * 0.0069f)));
        w = b * 1e-4f + v * (1.f - v * v * (0.16667f - v * v * 0.00833f));
    }
    y[i] = v + w;
}

// ---- walk: a lane reads a row of 32 floats, or a column. Both read the same tiles.
__global__ void __launch_bounds__(256) walk_rows(const float* __restrict__ x, float* out) {
    const int warp = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const float* tile = x + (size_t)warp * 1024;
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < 32; ++k) sum += tile[lane * 32 + ((k + lane) & 31)];
    out[warp * 32 + lane] = sum;
}

__global__ void __launch_bounds__(256) walk_columns(const float* __restrict__ x, float* out) {
    const int warp = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const float* tile = x + (size_t)warp * 1024;
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < 32; ++k) sum += tile[k * 32 + lane];
    out[warp * 32 + lane] = sum;
}

// ---- tiles: cp.async into a ring of STAGES buffers of 8 KiB. With one buffer each copy is waited
// for.
template <int STAGES>
__global__ void __launch_bounds__(128)
    tiles(const float4* __restrict__ x, float* out, int tiles_a_block) {
    __shared__ float4 ring[STAGES][512];
    const float4* mine = x + (size_t)blockIdx.x * tiles_a_block * 512;
    auto fetch = [&](int t) {
        if (t < tiles_a_block) {
            for (int c = 0; c < 4; ++c) {
                const unsigned to =
                    (unsigned)__cvta_generic_to_shared(&ring[t % STAGES][c * 128 + threadIdx.x]);
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                             "l"(mine + t * 512 + c * 128 + threadIdx.x));
            }
        }
        asm volatile("cp.async.commit_group;");
    };
    for (int s = 0; s < STAGES - 1; ++s) fetch(s);
    float sum = 0.f;
    for (int t = 0; t < tiles_a_block; ++t) {
        if (STAGES == 1) fetch(t);
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES > 1 ? STAGES - 2 : 0) : "memory");
        __syncthreads();
        if (STAGES > 1) fetch(t + STAGES - 1);
        for (int c = 0; c < 4; ++c) {
            const float4 v = ring[t % STAGES][c * 128 + (threadIdx.x + 32) % 128];
            sum = fmaf(v.x, v.y, sum) + fmaf(v.z, v.w, sum * 0.5f);
        }
        if (STAGES == 1) __syncthreads();
    }
    out[blockIdx.x * 128 + threadIdx.x] = sum;
}

// ---- blocks: equal work a block, one block an SM (by shared memory): part of a wave, a wave and a
// bit
__global__ void __launch_bounds__(1024) equal_blocks(float* y, float a, int rounds) {
    const int i = blockIdx.x * 1024 + threadIdx.x;
    float v = y[i], w = v + 1.f;
#pragma unroll 8
    for (int k = 0; k < rounds; ++k) {
        v = fmaf(v, a, 0.25f);
        w = fmaf(w, a, 0.75f);
    }
    y[i] = v + w;
}

// ---- uneven: over several waves the last blocks have more to do, or all have the same
__global__ void __launch_bounds__(256)
    uneven_blocks(float* y, float a, int rounds, int more_from, int more) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    const int mine = (int)blockIdx.x >= more_from ? more : rounds;
    float v = y[i], w = v + 1.f;
#pragma unroll 8
    for (int k = 0; k < mine; ++k) {
        v = fmaf(v, a, 0.25f);
        w = fmaf(w, a, 0.75f);
    }
    y[i] = v + w;
}

// ---- write: as much as the L2 keeps, or more
__global__ void write_only(float4* y, float v) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = make_float4(v, v + 1.f, v + 2.f, v + 3.f + i);
}

// ---- table: loads that the L1 serves
__global__ void __launch_bounds__(256)
    table_sums(const float4* __restrict__ table, float* out, int rounds) {
    float s0 = 0.f, s1 = 0.f, s2 = 0.f, s3 = 0.f;
#pragma unroll 8
    for (int k = 0; k < rounds; ++k) {
        const float4 v = table[(threadIdx.x + k * 32) & 1023];
        s0 += v.x;
        s1 += v.y;
        s2 += v.z;
        s3 += v.w;
    }
    out[blockIdx.x * 256 + threadIdx.x] = s0 + s1 + s2 + s3;
}

// ---- links: a dependent load, then dependent arithmetic
__global__ void __launch_bounds__(64)
    follow_links(const unsigned* __restrict__ next, float* out, int steps) {
    unsigned at = blockIdx.x * 64 + threadIdx.x;
    float v = at * 1e-6f;
    for (int k = 0; k < steps; ++k) {
        at = next[at];
        v += at * 1e-7f;
#pragma unroll
        for (int c = 0; c < 40; ++c) v = fmaf(v, 0.99f, 0.01f);
    }
    out[blockIdx.x * 64 + threadIdx.x] = v;
}

// ---- product: C = A B in FP32, an output a thread and 8 x 8 outputs a thread
__global__ void __launch_bounds__(256)
    product_plain(const float* __restrict__ a, const float* __restrict__ b, float* c, int n) {
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    float sum = 0.f;
    for (int k = 0; k < n; ++k) sum = fmaf(a[row * n + k], b[k * n + col], sum);
    c[row * n + col] = sum;
}

__global__ void __launch_bounds__(256, 2)
    product_tiled(const float* __restrict__ a, const float* __restrict__ b, float* c, int n) {
    __shared__ float sa[2][8][132], sb[2][8][128];
    const int t = threadIdx.x, tx = t % 16, ty = t / 16;
    const float* from_a = a + (size_t)(blockIdx.y * 128 + t / 2) * n + t % 2 * 4;
    const float* from_b = b + (size_t)(t / 32) * n + blockIdx.x * 128 + t % 32 * 4;
    float sum[8][8] = {};
    float4 va = *(const float4*)from_a, vb = *(const float4*)from_b;
    auto put = [&](int s) {
        sa[s][t % 2 * 4 + 0][t / 2] = va.x;
        sa[s][t % 2 * 4 + 1][t / 2] = va.y;
        sa[s][t % 2 * 4 + 2][t / 2] = va.z;
        sa[s][t % 2 * 4 + 3][t / 2] = va.w;
        *(float4*)&sb[s][t / 32][t % 32 * 4] = vb;
    };
    put(0);
    __syncthreads();
    for (int k0 = 0; k0 < n; k0 += 8) {
        const int s = k0 / 8 & 1;
        const bool more = k0 + 8 < n;
        from_a += 8;
        from_b += 8 * n;
        if (more) va = *(const float4*)from_a, vb = *(const float4*)from_b;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            float ra[8], rb[8];
            *(float4*)&ra[0] = *(float4*)&sa[s][k][ty * 4];
            *(float4*)&ra[4] = *(float4*)&sa[s][k][64 + ty * 4];
            *(float4*)&rb[0] = *(float4*)&sb[s][k][tx * 4];
            *(float4*)&rb[4] = *(float4*)&sb[s][k][64 + tx * 4];
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(ra[i], rb[j], sum[i][j]);
        }
        if (more) put(s ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int row = blockIdx.y * 128 + i / 4 * 64 + ty * 4 + i % 4;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float* to = c + (size_t)row * n + blockIdx.x * 128 + h * 64 + tx * 4;
            *(float4*)to =
                make_float4(sum[i][h * 4], sum[i][h * 4 + 1], sum[i][h * 4 + 2], sum[i][h * 4 + 3]);
        }
    }
}

// ---- hollow: nothing at all, threads that all leave, arithmetic that is never stored, one thread
__global__ void empty() {}

__global__ void all_leave(float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1.f;
}

__global__ void never_stored(float* y, float a, int rounds) {
    float v = threadIdx.x;
    for (int k = 0; k < rounds; ++k) v = fmaf(v, a, 1.f);
    if (v == -12345.f) y[threadIdx.x] = v;
}

__global__ void one_thread(float* y) {
    y[0] = y[0] * 0.5f + 1.f;
}

static __global__ void fill_links(unsigned* out) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i * 2654435761u;
    h ^= h >> 15;
    out[i] = h * 2246822519u % LINKS;
}

static int names;
static char** name;

static bool wanted(const char* group) {
    for (int i = 0; i < names; ++i)
        if (!std::strcmp(name[i], group)) return true;
    return names == 0;
}

template <class K>
static void room(K kernel, int bytes) {
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared));
}

int main(int argc, char** argv) {
    names = argc - 1;
    name = argv + 1;
    float *x = filled(FLOATS, 1), *y = filled(FLOATS / 2, 2);
    unsigned* next = nullptr;
    CHECK(cudaMalloc(&next, LINKS * sizeof(unsigned)));
    fill_links<<<LINKS / 256, 256>>>(next);
    const int kib = 1024;
    room(read_steps, 72 * kib);
    room(equal_blocks, 120 * kib);
    room(follow_links, 100 * kib);
    finish();
    CHECK(cudaProfilerStart());
    if (wanted("chains")) {
        chains<4><<<SMS * 8, 256>>>(y, 0.999f, 0.001f, 4096);
        chains<32><<<SMS * 8, 256>>>(y, 0.999f, 0.001f, 4096);
    }
    if (wanted("copy")) {
        copy_second<<<FLOATS / 2 / 256, 256>>>(x, y);
        copy_all<<<FLOATS / 8 / 256, 256>>>((float4*)x, (float4*)y);
    }
    if (wanted("read")) {
        const int resident[4] = {3, 5, 6, 8}, bytes[4] = {72 * kib, 44 * kib, 36 * kib, 0};
        for (int k = 0; k < 4; ++k)
            read_steps<<<SMS * resident[k], 256, bytes[k]>>>((float4*)x, y, FLOATS / 4);
    }
    if (wanted("convert")) {
        convert_units<<<SMS * 8, 256>>>(y, 512);
        convert_bits<<<SMS * 8, 256>>>(y, 512);
    }
    if (wanted("walk")) {
        const int warps = 1 << 14;  // 64 MiB
        walk_rows<<<warps / 8, 256>>>(x, y);
        walk_columns<<<warps / 8, 256>>>(x, y);
    }
    if (wanted("tiles")) {
        tiles<1><<<512, 128>>>((float4*)x, y, 64);
        tiles<4><<<512, 128>>>((float4*)x, y, 64);
    }
    if (wanted("blocks")) {
        equal_blocks<<<36, 1024, 120 * kib>>>(y, 0.999f, 4400);
        equal_blocks<<<132, 1024, 120 * kib>>>(y, 0.999f, 1200);
        equal_blocks<<<145, 1024, 120 * kib>>>(y, 0.999f, 2400);
        equal_blocks<<<264, 1024, 120 * kib>>>(y, 0.999f, 1318);
    }
    if (wanted("uneven")) {
        const int grid = SMS * 8 * 4;
        uneven_blocks<<<grid, 256>>>(y, 0.999f, 400, grid - 66, 8000);
        uneven_blocks<<<grid, 256>>>(y, 0.999f, 519, grid, 0);
    }
    if (wanted("write")) {
        write_only<<<(16 << 20) / 16 / 256, 256>>>((float4*)y, 1.f);
        write_only<<<FLOATS / 8 / 256, 256>>>((float4*)y, 1.f);
    }
    if (wanted("table")) {
        table_sums<<<SMS * 8 * 33 + 40, 256>>>((float4*)x, y, 64);
        table_sums<<<SMS * 8 * 33, 256>>>((float4*)x, y, 64);
    }
    if (wanted("links")) {
        follow_links<<<SMS * 32, 64, 100 * kib>>>(next, y, 16);
        follow_links<<<SMS * 32, 64>>>(next, y, 16);
    }
    if (wanted("product")) {
        const int n = 2048;
        product_plain<<<dim3(n / 32, n / 8), dim3(32, 8)>>>(x, x + n * n, y, n);
        product_tiled<<<dim3(n / 128, n / 128), 256>>>(x, x + n * n, y, n);
    }
    if (wanted("hollow")) {
        empty<<<1, 32>>>();
        all_leave<<<64, 128>>>(y, 0);
        never_stored<<<64, 128>>>(y, 0.5f, 64);
        one_thread<<<1, 1>>>(y);
    }
    finish();
    CHECK(cudaProfilerStop());
    return 0;
}
