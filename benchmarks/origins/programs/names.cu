// Kinds of launch and of name: C linkage, anonymous namespace, ABI tag, template, cooperative,
// cluster, dynamic shared memory, two streams, and calls of device functions that are not inlined.
#include "check.cuh"
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void c_linkage(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 1.f;
}

namespace {
__global__ void hidden(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] *= 0.5f;
}
}  // namespace

namespace outer::inner {
struct Policy {
    static constexpr int width = 4;
};
template <class P, int STEP, bool FLAG>
__global__ void templated(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += FLAG ? P::width * STEP : STEP;
}
}  // namespace outer::inner

__attribute__((abi_tag("v2", "wide"))) __global__ void tagged(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] -= 1.f;
}

// nvcc takes no letters beyond ASCII in a kernel's name, but a dollar sign. numba_app.py has such
// letters.
extern "C" __global__ void price$in$dollars(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] *= 3.14159f;
}

// Overloads: two kernels of one name.
__global__ void twice(float* y) {
    y[threadIdx.x] *= 2.f;
}
__global__ void twice(int* y) {
    y[threadIdx.x] *= 2;
}

__global__ void all_blocks_meet(float* y, int n) {
    cg::grid_group grid = cg::this_grid();
    for (int k = 0; k < 3; ++k) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] += 1.f;
        grid.sync();
    }
}

__global__ void __cluster_dims__(2, 1, 1) pairs_meet(float* y) {
    __shared__ float mine[256];
    cg::cluster_group cluster = cg::this_cluster();
    mine[threadIdx.x] = y[blockIdx.x * 256 + threadIdx.x];
    cluster.sync();
    float* other = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1);
    float v = other[255 - threadIdx.x];
    cluster.sync();
    y[blockIdx.x * 256 + threadIdx.x] = v;
}

__global__ void large_tile(float* y, int n) {
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = y[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = tile[n - 1 - i];
}

// A call that stays a call.
__device__ __noinline__ float far_function(float v, int rounds) {
    for (int k = 0; k < rounds; ++k) v = v * 1.01f + 0.1f;
    return v;
}

__device__ __noinline__ float recursive(float v, int depth) {
    return depth == 0 ? v : recursive(v * 0.5f + 1.f, depth - 1) + 0.25f;
}

__global__ void calls(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = far_function(y[i], 8) + far_function(y[i] + 1.f, i & 7);
}

__global__ void recurses(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = recursive(y[i], i & 7);
}

// Division and square root in double have slow paths, which the compiler puts behind the kernel's
// end.
__global__ void divides(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (float)(sqrt((double)y[i] + 2.0) / ((double)y[i] + 0.3));
}

typedef float (*unary)(float, int);
__device__ unary table[2] = {far_function, recursive};

__global__ void through_pointer(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = table[(i / 32) & 1](y[i], 4);
}

int main() {
    const int n = 1 << 18, grid = n / 256;
    float* y = filled(n);
    cudaStream_t one, two;
    CHECK(cudaStreamCreate(&one));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    c_linkage<<<grid, 256, 0, one>>>(y, n);
    hidden<<<grid, 256, 0, two>>>(y, n);
    outer::inner::templated<outer::inner::Policy, 3, true><<<grid, 256, 0, one>>>(y, n);
    outer::inner::templated<outer::inner::Policy, -1, false><<<grid, 256, 0, two>>>(y, n);
    tagged<<<dim3(grid / 2, 2), dim3(16, 16)>>>(y, n);
    price$in$dollars<<<grid, 256>>>(y, n);
    twice<<<1, 256>>>(y);
    twice<<<1, 256>>>(reinterpret_cast<int*>(y));
    int count = n;
    void* args[] = {&y, &count};
    CHECK(cudaLaunchCooperativeKernel((void*)all_blocks_meet, dim3(132), dim3(256), args, 0,
                                      nullptr));
    pairs_meet<<<64, 256>>>(y);
    const int bytes = 160 * 1024;
    CHECK(cudaFuncSetAttribute(large_tile, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    large_tile<<<4, 512, bytes>>>(y, bytes / 4);
    calls<<<grid, 256>>>(y, n);
    recurses<<<grid, 256>>>(y, n);
    divides<<<grid, 256>>>(y, n);
    through_pointer<<<grid, 256>>>(y, n);
    finish();
    return 0;
}
