// Cash-flow projection of a book of life and pension contracts, month by month, under a set of economic scenarios.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                       \
    do {                                                                                  \
        cudaError_t status_ = (call);                                                     \
        if (status_ != cudaSuccess) {                                                     \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(1);                                                                 \
        }                                                                                 \
    } while (0)

constexpr int kContracts = 1 << 17;
constexpr int kMonths = 480;
constexpr int kScenarios = 16;
constexpr int kThreads = 256;

enum Product : int { kTerm = 0, kAnnuity = 1, kUnitLinked = 2 };

struct Contract {
    int product;
    float age;          // years at the valuation date
    float sum;          // insured sum, yearly income or fund, thousands
    float premium;      // monthly
    float duration;     // years in force
    float technical;    // guaranteed yearly rate
};

struct Book {
    int* product;
    float* age;
    float* sum;
    float* premium;
    float* duration;
    float* technical;
};

__device__ __forceinline__ float monthly_mortality(float age, float years) {
    float senescent = 2.2e-5f * __expf(0.098f * age);
    float accident = 4.0e-4f * __expf(-0.5f * (age - 21.0f) * (age - 21.0f) * 0.02f);
    float hazard = 3.0e-4f + accident + senescent * __expf(-0.012f * years);
    return 1.0f - __expf(-hazard * (1.0f / 12.0f));
}

__device__ __forceinline__ float monthly_lapse(float duration, float gap, float season) {
    float seasoning = 0.015f + 0.10f * __expf(-0.45f * duration);
    float dynamic = 0.5f + __fdividef(2.0f, 1.0f + __expf(-60.0f * (gap - 0.02f)));
    float rate = fminf(seasoning * dynamic * season, 0.6f);
    return 1.0f - __powf(1.0f - rate, 1.0f / 12.0f);
}

// Monthly rate of becoming disabled, and of recovering.
__device__ __forceinline__ float2 monthly_disability(float age, float years, float growth) {
    float onset = 0.001f + __fdividef(0.02f, 1.0f + __expf(-0.15f * (age - 58.0f)));
    float cycle = 1.0f - 6.0f * growth;
    float recovery = 0.25f * __expf(-0.03f * (age - 30.0f)) * __expf(-0.01f * years);
    return make_float2(onset * cycle * (1.0f / 12.0f), fminf(recovery, 0.5f) * (1.0f / 12.0f));
}

__global__ void project(Book book, const float4* paths, float* values) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= kContracts) return;
    const float4* path = paths + blockIdx.y * kMonths;
    const int product = book.product[c];
    const float age0 = book.age[c], sum = book.sum[c], premium = book.premium[c];
    const float duration0 = book.duration[c], technical = book.technical[c];

    float alive = 1.0f, spouse = 1.0f, discount = 1.0f, index = 1.0f, cost = 0.004f;
    float disabled = 0.0f, credited = technical, fund = sum, value = 0.0f;
    for (int m = 0; m < kMonths; ++m) {
        const float4 market = path[m];   // short rate, equity, inflation (monthly), new-money yield (yearly)
        const float years = m * (1.0f / 12.0f);
        const float age = age0 + years;
        const float died = monthly_mortality(age, years);
        credited = fmaxf(technical, 0.97f * credited + 0.03f * market.w);
        const float season = 1.0f + 0.15f * __sinf(0.5235988f * m);
        const float lapsed = monthly_lapse(duration0 + years, market.w - credited, season);
        const float2 disability = monthly_disability(age, years, market.y);
        disabled += disability.x * (1.0f - disabled) - disability.y * disabled;
        const float paid = premium * (1.0f - disabled);
        discount *= __expf(-market.x);
        cost *= 1.0f + market.z;

        float flow;
        if (product == kTerm) {
            const float share = fmaxf(1.0f - years * 0.025f, 0.0f);
            flow = died * sum * share - (years < 30.0f ? paid : 0.0f);
            flow += lapsed * 0.2f * premium * __fdividef(years, 1.0f + 0.1f * years);
        } else if (product == kAnnuity) {
            index *= 1.0f + fminf(fmaxf(0.8f * market.z, 0.0f), 0.004f);
            spouse *= 1.0f - 0.8f * died;
            flow = sum * (1.0f / 12.0f) * index * (1.0f + 0.6f * died * spouse);
        } else {
            fund = fund * (1.0f + market.y - 0.00125f) + 0.95f * paid;
            const float promised = sum * __expf(technical * years);
            const float depth = __fdividef(promised - fund, 0.2f * promised);
            const float shortfall = 0.1f * promised * (__logf(1.0f + __expf(2.0f * depth)));
            flow = died * (fund + shortfall) + lapsed * 0.98f * fund - paid;
        }
        value += alive * discount * (flow + cost);
        alive *= (1.0f - died) * (product == kAnnuity ? 1.0f : 1.0f - lapsed);
    }
    values[blockIdx.y * kContracts + c] = value;
}

// Total of the book for each scenario.
__global__ void total_scenarios(const float* values, double* totals) {
    __shared__ double partial[kThreads];
    const float* row = values + blockIdx.y * kContracts;
    double sum = 0.0;
    for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < kContracts; c += gridDim.x * blockDim.x) sum += row[c];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(&totals[blockIdx.y], partial[0]);
}

static float next_uniform(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return (float(state >> 8) + 0.5f) * (1.0f / 16777216.0f);
}

static std::vector<Contract> load_ledger() {
    std::vector<Contract> ledger(kContracts);
    uint32_t state = 5150u;
    for (Contract& c : ledger) {
        float draw = next_uniform(state);
        c.product = draw < 0.42f ? kTerm : draw < 0.72f ? kAnnuity : kUnitLinked;
        c.age = c.product == kAnnuity ? 60.0f + 20.0f * next_uniform(state) : 25.0f + 35.0f * next_uniform(state);
        c.sum = c.product == kAnnuity ? 6.0f + 18.0f * next_uniform(state) : 20.0f + 180.0f * next_uniform(state);
        c.premium = c.product == kAnnuity ? 0.0f : 0.0012f * c.sum;
        c.duration = 20.0f * next_uniform(state);
        c.technical = 0.005f + 0.025f * next_uniform(state);
    }
    return ledger;
}

template <typename T, typename Field>
static T* column(const std::vector<Contract>& ledger, Field field) {
    std::vector<T> host;
    for (const Contract& c : ledger) host.push_back(c.*field);
    T* device;
    CHECK(cudaMalloc(&device, sizeof(T) * host.size()));
    CHECK(cudaMemcpy(device, host.data(), sizeof(T) * host.size(), cudaMemcpyHostToDevice));
    return device;
}

static std::vector<float4> draw_scenarios(uint32_t seed) {
    std::vector<float4> paths(kScenarios * kMonths);
    uint32_t state = seed;
    for (int s = 0; s < kScenarios; ++s) {
        float rate = 0.02f, inflation = 0.02f;
        for (int m = 0; m < kMonths; ++m) {
            float a = next_uniform(state) + next_uniform(state) - 1.0f;
            float b = next_uniform(state) + next_uniform(state) - 1.0f;
            rate = std::max(rate + 0.01f * (0.025f - rate) + 0.004f * a, -0.005f);
            inflation += 0.03f * (0.02f - inflation) + 0.003f * b;
            float equity = 0.005f + 0.09f * (0.7f * b - 0.3f * a);
            paths[s * kMonths + m] = make_float4(rate / 12.0f, equity, inflation / 12.0f, rate + 0.01f);
        }
    }
    return paths;
}

int main() {
    std::vector<Contract> ledger = load_ledger();
    Book book{column<int>(ledger, &Contract::product), column<float>(ledger, &Contract::age),
              column<float>(ledger, &Contract::sum), column<float>(ledger, &Contract::premium),
              column<float>(ledger, &Contract::duration), column<float>(ledger, &Contract::technical)};
    const int sets = 4;
    float4* paths[sets];
    for (int k = 0; k < sets; ++k) {
        std::vector<float4> drawn = draw_scenarios(31u + k);
        CHECK(cudaMalloc(&paths[k], sizeof(float4) * drawn.size()));
        CHECK(cudaMemcpy(paths[k], drawn.data(), sizeof(float4) * drawn.size(), cudaMemcpyHostToDevice));
    }
    float* values;
    double* totals;
    CHECK(cudaMalloc(&values, sizeof(float) * kScenarios * kContracts));
    CHECK(cudaMalloc(&totals, sizeof(double) * kScenarios));
    CHECK(cudaMemset(totals, 0, sizeof(double) * kScenarios));

    int runs = 0;
    auto valuation = [&]() {
        project<<<dim3(kContracts / kThreads, kScenarios), kThreads>>>(book, paths[runs++ % sets], values);
        total_scenarios<<<dim3(32, kScenarios), kThreads>>>(values, totals);
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 12; ++i) valuation();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    const int blocks = 10, per_block = 8;
    for (int b = 0; b < blocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) valuation();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    double host[kScenarios], mean = 0.0, worst = -1e300;
    CHECK(cudaMemcpy(host, totals, sizeof(host), cudaMemcpyDeviceToHost));
    for (double t : host) {
        mean += t / runs / kContracts / kScenarios;
        worst = std::max(worst, t / runs / kContracts);
    }
    std::printf("{\"program\": \"cuda_pension_ledger\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f]}\n",
                runs, median, mean, worst);
    return 0;
}
