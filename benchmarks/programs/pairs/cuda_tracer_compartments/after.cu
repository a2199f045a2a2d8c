// Whole-body kinetics of a radiotracer for a virtual population.
//
// Every patient has the same organ exchange matrix, an own blood flow, liver
// capacity and excretion. Amounts in the organs are advanced with classical
// Runge-Kutta steps while the tracer is infused into the plasma.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t status_ = (call);                                            \
        if (status_ != cudaSuccess) {                                            \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status_)); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

constexpr int kOrgans = 14;
constexpr int kPlasma = 0;
constexpr int kLiver = 1;
constexpr int kKidney = 2;

__constant__ float c_exchange[kOrgans * kOrgans];

struct Patient {
    float flow;
    float liver_capacity;
    float excretion;
};

__device__ void derivative(const float* y, float* rate, const Patient& patient,
                           float infusion) {
    #pragma unroll
    for (int i = 0; i < kOrgans; ++i) {
        float sum = 0.0f;
        #pragma unroll
        for (int j = 0; j < kOrgans; ++j) {
            sum += c_exchange[i * kOrgans + j] * y[j];
        }
        rate[i] = patient.flow * sum;
    }
    rate[kPlasma] += infusion;
    rate[kLiver] -= patient.liver_capacity * y[kLiver] / (1.0f + y[kLiver]);
    rate[kKidney] -= patient.excretion * y[kKidney];
}

__global__ void advance(float* amounts, const Patient* population, int patients,
                        int substeps, float dt, float infusion) {
    const int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= patients) return;
    const Patient patient = population[p];
    float y[kOrgans];
    float stage[kOrgans];
    float rate[kOrgans];
    float total[kOrgans];
    #pragma unroll
    for (int i = 0; i < kOrgans; ++i) y[i] = amounts[(size_t)i * patients + p];

    for (int s = 0; s < substeps; ++s) {
        derivative(y, rate, patient, infusion);
        #pragma unroll
        for (int i = 0; i < kOrgans; ++i) {
            total[i] = rate[i];
            stage[i] = y[i] + 0.5f * dt * rate[i];
        }
        derivative(stage, rate, patient, infusion);
        #pragma unroll
        for (int i = 0; i < kOrgans; ++i) {
            total[i] += 2.0f * rate[i];
            stage[i] = y[i] + 0.5f * dt * rate[i];
        }
        derivative(stage, rate, patient, infusion);
        #pragma unroll
        for (int i = 0; i < kOrgans; ++i) {
            total[i] += 2.0f * rate[i];
            stage[i] = y[i] + dt * rate[i];
        }
        derivative(stage, rate, patient, infusion);
        #pragma unroll
        for (int i = 0; i < kOrgans; ++i) {
            y[i] += dt / 6.0f * (total[i] + rate[i]);
        }
    }
    #pragma unroll
    for (int i = 0; i < kOrgans; ++i) amounts[(size_t)i * patients + p] = y[i];
}

static std::vector<float> exchange_matrix(int organs, std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(0.02f, 0.2f);
    std::vector<float> matrix(kOrgans * kOrgans, 0.0f);
    for (int from = 0; from < organs; ++from) {
        float leaving = 0.0f;
        for (int to = 0; to < organs; ++to) {
            if (to == from) continue;
            const float k = uniform(random) * (from == kPlasma || to == kPlasma ? 1.0f : 0.2f);
            matrix[to * kOrgans + from] = k;
            leaving += k;
        }
        matrix[from * kOrgans + from] = -leaving;
    }
    return matrix;
}

int main() {
    const int organs = kOrgans;
    const int patients = 1 << 19;
    const int substeps = 16;
    const float dt = 0.01f;
    const int warmup = 40, blocks = 10, per_block = 10;

    std::mt19937 random(2024);
    const std::vector<float> exchange = exchange_matrix(organs, random);
    std::normal_distribution<float> spread(0.0f, 0.25f);
    std::vector<Patient> population(patients);
    for (Patient& patient : population) {
        patient.flow = std::exp(spread(random));
        patient.liver_capacity = 0.8f * std::exp(spread(random));
        patient.excretion = 0.3f * std::exp(spread(random));
    }

    CHECK(cudaMemcpyToSymbol(c_exchange, exchange.data(), exchange.size() * sizeof(float)));
    Patient* d_population = nullptr;
    float* d_amounts = nullptr;
    const size_t amount_bytes = (size_t)organs * patients * sizeof(float);
    CHECK(cudaMalloc(&d_population, patients * sizeof(Patient)));
    CHECK(cudaMalloc(&d_amounts, amount_bytes));
    CHECK(cudaMemcpy(d_population, population.data(), patients * sizeof(Patient), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(d_amounts, 0, amount_bytes));

    const int threads = 128;
    const int grid = (patients + threads - 1) / threads;
    int steps = 0;
    auto step = [&]() {
        const float infusion = steps < 60 ? 1.0f : 0.1f;
        advance<<<grid, threads>>>(d_amounts, d_population, patients, substeps, dt, infusion);
        ++steps;
    };

    for (int i = 0; i < warmup; ++i) step();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) step();
        CHECK(cudaDeviceSynchronize());
        const auto stop = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::micro>(stop - start).count() / per_block);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> amounts((size_t)organs * patients);
    CHECK(cudaMemcpy(amounts.data(), d_amounts, amount_bytes, cudaMemcpyDeviceToHost));
    double plasma = 0.0, liver = 0.0, body = 0.0;
    for (int i = 0; i < organs; ++i) {
        for (int p = 0; p < patients; ++p) {
            const double amount = amounts[(size_t)i * patients + p];
            body += amount;
            if (i == kPlasma) plasma += amount;
            if (i == kLiver) liver += amount;
        }
    }
    CHECK(cudaFree(d_amounts));
    CHECK(cudaFree(d_population));
    std::printf("{\"program\": \"cuda_tracer_compartments\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f, %.6f]}\n",
                steps, times[times.size() / 2], plasma / patients, liver / patients, body / patients);
    return 0;
}
