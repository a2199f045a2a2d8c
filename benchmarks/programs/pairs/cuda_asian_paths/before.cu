// Price an arithmetic Asian option by Monte Carlo, with antithetic paths.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int kBlocks = 132 * 16;
constexpr int kThreads = 256;
constexpr int kPathsPerThread = 8;
constexpr int kDays = 252;
constexpr int kWarmup = 3;
constexpr int kSteps = 40;

struct Option {
  float spot, strike, rate, volatility, years;
};

__device__ __forceinline__ unsigned next(unsigned& s) {
  s ^= s << 13;
  s ^= s >> 17;
  s ^= s << 5;
  return s;
}

__device__ unsigned mix(unsigned x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x | 1U;
}

__global__ void __launch_bounds__(kThreads) price(Option o, unsigned seed, float* sums) {
  const unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned state = mix(id * 2654435761U + seed);
  const float dt = o.years / kDays;
  const float drift = (o.rate - 0.5f * o.volatility * o.volatility) * dt * 1.44269504f;
  const float spread = o.volatility * sqrtf(dt) * 1.44269504f;
  float total = 0.0f;
  for (int path = 0; path < kPathsPerThread; ++path) {
    float up = 0.0f, down = 0.0f, sum_up = 0.0f, sum_down = 0.0f;
#pragma unroll 2
    for (int day = 0; day < kDays; day += 2) {
      const float u = (next(state) >> 8) * 5.9604645e-8f + 2.9802322e-8f;
      const float v = (next(state) >> 8) * (6.2831853f * 5.9604645e-8f);
      const float radius = spread * __fsqrt_rn(-2.0f * __logf(u));
      float sine, cosine;
      __sincosf(v, &sine, &cosine);
      up += drift + radius * cosine;
      down += drift - radius * cosine;
      sum_up += exp2f(up);
      sum_down += exp2f(down);
      up += drift + radius * sine;
      down += drift - radius * sine;
      sum_up += exp2f(up);
      sum_down += exp2f(down);
    }
    total += fmaxf(o.spot * sum_up / kDays - o.strike, 0.0f);
    total += fmaxf(o.spot * sum_down / kDays - o.strike, 0.0f);
  }
  __shared__ float part[kThreads / 32];
  for (int k = 16; k > 0; k /= 2) total += __shfl_down_sync(0xffffffffu, total, k);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) total += part[w];
    sums[blockIdx.x] = total;
  }
}

int main() {
  const Option options[3] = {
      {100.0f, 95.0f, 0.03f, 0.25f, 1.0f},
      {100.0f, 100.0f, 0.03f, 0.20f, 2.0f},
      {100.0f, 110.0f, 0.02f, 0.35f, 1.5f},
  };
  float* sums[3];
  for (float*& each : sums) cudaMalloc(&each, kBlocks * sizeof(float));
  auto step = [&](unsigned number) {
    for (int k = 0; k < 3; ++k) price<<<kBlocks, kThreads>>>(options[k], 977U * number + k, sums[k]);
  };
  for (int n = 0; n < kWarmup; ++n) step(n);
  cudaDeviceSynchronize();
  std::vector<double> laps;
  for (int n = 0; n < kSteps; n += 4) {
    const auto start = std::chrono::steady_clock::now();
    for (int each = 0; each < 4; ++each) step(kWarmup + n + each);
    cudaDeviceSynchronize();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    laps.push_back(took.count() / 4);
  }
  double value[3];
  std::vector<float> host(kBlocks);
  for (int k = 0; k < 3; ++k) {
    cudaMemcpy(host.data(), sums[k], kBlocks * sizeof(float), cudaMemcpyDeviceToHost);
    double total = 0;
    for (float each : host) total += each;
    value[k] = std::exp(-options[k].rate * options[k].years) * total /
               (2.0 * kBlocks * kThreads * kPathsPerThread);
  }
  if (cudaGetLastError() != cudaSuccess) return 1;
  std::nth_element(laps.begin(), laps.begin() + laps.size() / 2, laps.end());
  std::printf("prices %.4f %.4f %.4f\n", value[0], value[1], value[2]);
  std::printf("{\"program\": \"cuda_asian_paths\", \"steps\": %d, \"us\": %.2f, \"result\": [%.6f, %.6f, %.6f]}\n",
              kWarmup + kSteps, laps[laps.size() / 2], value[0], value[1], value[2]);
}
