// A wave on a grid in steps of three kernels and a read-back. "graph": the kernels as one CUDA graph;
// "streams": halves of the grid on two streams; "exit": ends by _exit; "launch": only empty kernels.
#include <chrono>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

__global__ void empty() {}
__global__ void push(float *speed, const float *height, int first, int n) {
  int at = first + blockIdx.x * blockDim.x + threadIdx.x;
  if (at > 0 && at < n - 1) speed[at] += 0.1f * (height[at - 1] - 2 * height[at] + height[at + 1]);
}
template <int TIMES>
__global__ void move(float *height, const float *speed, int first, int n) {
  int at = first + blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n)
    for (int time = 0; time < TIMES; time++) height[at] += 0.1f * speed[at];
}

static void work(float *height, float *speed, int n, cudaStream_t stream, int first, int size) {
  push<<<(size + 255) / 256, 256, 0, stream>>>(speed, height, first, n);
  move<1><<<(size + 255) / 256, 256, 0, stream>>>(height, speed, first, n);
  move<4><<<(size + 255) / 256, 256, 0, stream>>>(height, speed, first, n);
}

int main(int count, char **words) {
  int steps = count > 1 ? atoi(words[1]) : 50, n = 1 << 22;
  const char *how = count > 2 ? words[2] : "plain";
  float *height, *speed, seen;
  cudaMalloc(&height, n * sizeof(float));
  cudaMalloc(&speed, n * sizeof(float));
  cudaMemset(height, 0, n * sizeof(float));
  cudaStream_t one, two;
  cudaStreamCreate(&one);
  cudaStreamCreate(&two);
  cudaGraph_t graph;
  cudaGraphExec_t ready = nullptr;
  if (!strcmp(how, "graph")) {
    cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal);
    work(height, speed, n, one, 0, n);
    cudaStreamEndCapture(one, &graph);
    cudaGraphInstantiate(&ready, graph, 0);
  }
  std::vector<double> times;
  for (int step = 0; step < steps; step++) {
    auto began = std::chrono::steady_clock::now();
    if (!strcmp(how, "launch"))
      for (int at = 0; at < 1000; at++) empty<<<1, 32, 0, one>>>();
    else if (ready)
      cudaGraphLaunch(ready, one);
    else if (!strcmp(how, "streams"))
      work(height, speed, n, one, 0, n / 2), work(height, speed, n, two, n / 2, n / 2);
    else
      work(height, speed, n, one, 0, n);
    cudaStreamSynchronize(two);
    cudaMemcpyAsync(&seen, height, sizeof seen, cudaMemcpyDeviceToHost, one);
    cudaStreamSynchronize(one);
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count());
  }
  std::sort(times.begin() + times.size() / 3, times.end());
  printf("{\"program\": \"waves %s\", \"steps\": %d, \"us\": %.1f}\n", how, steps, times[times.size() * 2 / 3]);
  fflush(stdout);
  if (!strcmp(how, "exit")) _exit(3);
  return 0;
}
