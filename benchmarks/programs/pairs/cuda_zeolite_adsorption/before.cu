// Henry coefficient of a guest molecule in a zeolite framework.
// Each step displaces the framework atoms thermally, maps the guest's potential
// (Lennard-Jones and screened charges) over the unit cell and averages the
// Boltzmann factor.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t err_ = (call);                                                   \
        if (err_ != cudaSuccess) {                                                   \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                   \
                         cudaGetErrorString(err_));                                  \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

typedef double real;

constexpr int GRID = 96;
constexpr int POINTS = GRID * GRID * GRID;
constexpr int ATOMS = 768;
constexpr int TILE = 128;
constexpr int WARMUP = 600;
constexpr int BLOCKS = 8;
constexpr int BLOCK_STEPS = 10;

struct Atom {
    real x, y, z, charge;
};

struct Force {
    real epsilon, sigma2;
};

__device__ unsigned int mix(unsigned int v) {
    v ^= v >> 16;
    v *= 0x7feb352du;
    v ^= v >> 15;
    v *= 0x846ca68bu;
    v ^= v >> 16;
    return v;
}

__global__ void vibrate(const Atom* rest, Atom* atoms, real amplitude, unsigned int step) {
    int a = blockIdx.x * blockDim.x + threadIdx.x;
    if (a >= ATOMS) return;
    unsigned int r = mix(a * 2654435761u + step);
    Atom atom = rest[a];
    atom.x += amplitude * (real(r & 1023u) / real(512) - real(1));
    atom.y += amplitude * (real((r >> 10) & 1023u) / real(512) - real(1));
    atom.z += amplitude * (real((r >> 20) & 1023u) / real(512) - real(1));
    atoms[a] = atom;
}

__device__ real nearest(real d, real cell) {
    d = fabs(d);
    return fmin(d, cell - d);
}

__global__ void potential_map(const Atom* __restrict__ atoms, const Force* __restrict__ forces,
                              float* __restrict__ energy, real cell, real alpha, real charge) {
    __shared__ Atom tile[TILE];
    __shared__ Force tile_force[TILE];
    int p = blockIdx.x * TILE + threadIdx.x;
    real spacing = cell / real(GRID);
    real px = (p % GRID + real(0.5)) * spacing;
    real py = ((p / GRID) % GRID + real(0.5)) * spacing;
    real pz = (p / (GRID * GRID) + real(0.5)) * spacing;
    real sum = 0;
    for (int base = 0; base < ATOMS; base += TILE) {
        tile[threadIdx.x] = atoms[base + threadIdx.x];
        tile_force[threadIdx.x] = forces[base + threadIdx.x];
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < TILE; ++k) {
            real dx = nearest(px - tile[k].x, cell);
            real dy = nearest(py - tile[k].y, cell);
            real dz = nearest(pz - tile[k].z, cell);
            real r2 = fmax(dx * dx + dy * dy + dz * dz, real(1));
            real inv_r = rsqrt(r2);
            real s2 = tile_force[k].sigma2 * inv_r * inv_r;
            real s6 = s2 * s2 * s2;
            real lennard_jones = real(4) * tile_force[k].epsilon * (s6 * s6 - s6);
            real screened = charge * tile[k].charge * exp(-alpha * r2 * inv_r) * inv_r;
            sum += lennard_jones + screened;
        }
        __syncthreads();
    }
    energy[p] = float(fmin(sum, real(1.0e4)));
}

__global__ void boltzmann(const float* __restrict__ energy, float* __restrict__ henry, float beta,
                          int step) {
    __shared__ float warp_sum[8];
    float sum = 0.0f;
    for (int p = blockIdx.x * blockDim.x + threadIdx.x; p < POINTS; p += gridDim.x * blockDim.x)
        sum += __expf(-beta * energy[p]);
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if ((threadIdx.x & 31) == 0) warp_sum[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) sum += warp_sum[w];
        atomicAdd(henry + step, sum / POINTS);
    }
}

int main() {
    const int steps = WARMUP + BLOCKS * BLOCK_STEPS;
    const real cell = real(24.0);
    std::mt19937 rng(4711);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<Atom> atoms(ATOMS);
    std::vector<Force> forces(ATOMS);
    for (int a = 0; a < ATOMS; ++a) {
        bool silicon = a % 3 == 0;
        atoms[a].x = real(24.0 * uniform(rng));
        atoms[a].y = real(24.0 * uniform(rng));
        atoms[a].z = real(24.0 * uniform(rng));
        atoms[a].charge = real(silicon ? 1.4 : -0.7);
        forces[a].epsilon = real(silicon ? 0.05 : 0.12);
        forces[a].sigma2 = real(silicon ? 1.6 : 2.4);
    }
    Atom *d_rest, *d_atoms;
    Force* d_forces;
    float *d_energy, *d_henry;
    CHECK(cudaMalloc(&d_rest, ATOMS * sizeof(Atom)));
    CHECK(cudaMalloc(&d_atoms, ATOMS * sizeof(Atom)));
    CHECK(cudaMalloc(&d_forces, ATOMS * sizeof(Force)));
    CHECK(cudaMalloc(&d_energy, POINTS * sizeof(float)));
    CHECK(cudaMalloc(&d_henry, steps * sizeof(float)));
    CHECK(cudaMemcpy(d_rest, atoms.data(), ATOMS * sizeof(Atom), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_forces, forces.data(), ATOMS * sizeof(Force), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(d_henry, 0, steps * sizeof(float)));

    int step = 0;
    auto advance = [&]() {
        vibrate<<<ATOMS / TILE, TILE>>>(d_rest, d_atoms, real(0.08), unsigned(step) * 7919u);
        potential_map<<<POINTS / TILE, TILE>>>(d_atoms, d_forces, d_energy, cell, real(0.45),
                                               real(0.5));
        boltzmann<<<264, 256>>>(d_energy, d_henry, 0.4f, step);
        ++step;
    };

    for (int i = 0; i < WARMUP; ++i) advance();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < BLOCK_STEPS; ++i) advance();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        times.push_back(spent.count() / BLOCK_STEPS);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    std::vector<float> henry(steps);
    CHECK(cudaMemcpy(henry.data(), d_henry, steps * sizeof(float), cudaMemcpyDeviceToHost));
    double mean = 0.0;
    for (float h : henry) mean += h / steps;
    std::printf("{\"program\": \"cuda_zeolite_adsorption\", \"steps\": %d, \"us\": %.3f, "
                "\"result\": [%.8g, %.8g, %.8g]}\n",
                BLOCKS * BLOCK_STEPS, median, mean, henry.front(), henry.back());
    return 0;
}
