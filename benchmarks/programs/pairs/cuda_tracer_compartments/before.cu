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

constexpr int kMaxOrgans = 16;
constexpr int kPlasma = 0;
constexpr int kLiver = 1;
constexpr int kKidney = 2;

__constant__ float c_exchange[kMaxOrgans * kMaxOrgans];

struct Patient {
    float flow;
    float liver_capacity;
    float excretion;
};

__device__ void derivative(const float* y, float* rate, int organs, const Patient& patient,
                           float infusion) {
    for (int i = 0; i < organs; ++i) {
        float sum = 0.0f;
        for (int j = 0; j < organs; ++j) {
            sum += c_exchange[i * kMaxOrgans + j] * y[j];
        }
        rate[i] = patient.flow * sum;
    }
    rate[kPlasma] += infusion;
    rate[kLiver] -= patient.liver_capacity * y[kLiver] / (1.0f + y[kLiver]);
    rate[kKidney] -= patient.excretion * y[kKidney];
}

__global__ void advance(float* amounts, const Patient* population, int patients, int organs,
                        int substeps, float dt, float infusion) {
    const int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= patients) return;
    const Patient patient = population[p];
    float y[kMaxOrgans];
    float stage[kMaxOrgans];
    float rate[kMaxOrgans];
    float total[kMaxOrgans];
    for (int i = 0; i < organs; ++i) y[i] = amounts[(size_t)i * patients + p];

    for (int s = 0; s < substeps; ++s) {
        derivative(y, rate, organs, patient, infusion);
        for (int i = 0; i < organs; ++i) {
            total[i] = rate[i];
            stage[i] = y[i] + 0.5f * dt * rate[i];
        }
        derivative(stage, rate, organs, patient, infusion);
        for (int i = 0; i < organs; ++i) {
            total[i] += 2.0f * rate[i];
            stage[i] = y[i] + 0.5f * dt * rate[i];
        }
        derivative(stage, rate, organs, patient, infusion);
        for (int i = 0; i < organs; ++i) {
            total[i] += 2.0f * rate[i];
            stage[i] = y[i] + dt * rate[i];
        }
        derivative(stage, rate, organs, patient, infusion);
        for (int i = 0; i < organs; ++i) {
            y[i] += dt / 6.0f * (total[i] + rate[i]);
        }
    }
    for (int i = 0; i < organs; ++i) amounts[(size_t)i * patients + p] = y[i];
}

static std::vector<float> exchange_matrix(int organs, std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(0.02f, 0.2f);
    std::vector<float> matrix(kMaxOrgans * kMaxOrgans, 0.0f);
    for (int from = 0; from < organs; ++from) {
        float leaving = 0.0f;
        for (int to = 0; to < organs; ++to) {
            if (to == from) continue;
            const float k = uniform(random) * (from == kPlasma || to == kPlasma ? 1.0f : 0.2f);
            matrix[to * kMaxOrgans + from] = k;
            leaving += k;
        }
        matrix[from * kMaxOrgans + from] = -leaving;
    }
    return matrix;
}

int main() {
    const int organs = 14;
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
        advance<<<grid, threads>>>(d_amounts, d_population, patients, organs, substeps, dt, infusion);
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
