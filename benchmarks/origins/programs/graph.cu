// A CUDA graph: two kernels in parallel, a memset, and a kernel that joins them. Launched twice.
#include "check.cuh"

__global__ void left(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] * 1.5f;
}

__global__ void right(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = rsqrtf(y[i] + 1.f);
}

__global__ void join(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] += a[i] * b[i];
}

int main() {
    const int n = 1 << 20;
    float *a = filled(n), *b = filled(n, 2), *c = filled(n, 3);
    cudaStream_t main_stream, side;
    cudaEvent_t forked, joined;
    CHECK(cudaStreamCreate(&main_stream));
    CHECK(cudaStreamCreate(&side));
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaEventRecord(forked, main_stream));
    CHECK(cudaStreamWaitEvent(side, forked, 0));
    left<<<n / 256, 256, 0, main_stream>>>(a, n);
    CHECK(cudaMemsetAsync(c, 0, n * sizeof(float), side));
    right<<<n / 256, 256, 0, side>>>(b, n);
    CHECK(cudaEventRecord(joined, side));
    CHECK(cudaStreamWaitEvent(main_stream, joined, 0));
    join<<<n / 256, 256, 0, main_stream>>>(a, b, c, n);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(main_stream, &graph));
    cudaGraphExec_t ready;
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    for (int k = 0; k < 2; ++k) CHECK(cudaGraphLaunch(ready, main_stream));
    finish();
    return 0;
}
