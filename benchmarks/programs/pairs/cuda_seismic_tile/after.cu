// Acoustic waves in a plane of rock, eighth order in space, tile in shared memory.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int NX = 8192;
constexpr int NY = 4096;
constexpr int RADIUS = 4;
constexpr int MAX_RADIUS = RADIUS;
constexpr int TX = 32;
constexpr int TY = 8;
constexpr int PITCH = TX + 2 * MAX_RADIUS;
constexpr int TILE_BYTES = PITCH * (TY + 2 * MAX_RADIUS) * sizeof(float);
constexpr int SUBSTEPS = 6;
constexpr int WARMUP = 4;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 8;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

__constant__ float coefficient[RADIUS + 1] = {-2.8472222f, 1.6f, -0.2f, 0.025396825f, -0.0017857143f};

__global__ void wave(const float* now, float* old, const float* speed) {
    extern __shared__ float tile[];
    int x = blockIdx.x * TX + threadIdx.x, y = blockIdx.y * TY + threadIdx.y;
    for (int v = threadIdx.y; v < TY + 2 * RADIUS; v += TY)
        for (int u = threadIdx.x; u < TX + 2 * RADIUS; u += TX) {
            int gx = min(max(int(blockIdx.x * TX) + u - RADIUS, 0), NX - 1);
            int gy = min(max(int(blockIdx.y * TY) + v - RADIUS, 0), NY - 1);
            tile[v * PITCH + u] = now[size_t(gy) * NX + gx];
        }
    __syncthreads();
    int u = threadIdx.x + RADIUS, v = threadIdx.y + RADIUS;
    const float* here = tile + v * PITCH + u;
    float sum = 2 * coefficient[0] * here[0];
    for (int d = 1; d <= RADIUS; ++d)
        sum += coefficient[d] * (here[-d] + here[d] + here[-d * PITCH] + here[d * PITCH]);
    size_t i = size_t(y) * NX + x;
    old[i] = 2 * here[0] - old[i] + speed[i] * sum;
}

int main() {
    size_t n = size_t(NX) * NY;
    std::vector<float> host(n), rock(n);
    for (size_t i = 0; i < n; ++i) {
        float x = float(i % NX) - NX / 2, y = float(i / NX) - NY / 2;
        host[i] = expf(-(x * x + y * y) / 5000.0f);
        rock[i] = 0.1f + 0.05f * float((i / NX / 128) % 3);
    }
    float *a, *b, *speed;
    for (float** p : {&a, &b, &speed}) CHECK(cudaMalloc(p, n * sizeof(float)));
    CHECK(cudaMemcpy(a, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaFuncSetAttribute(wave, cudaFuncAttributeMaxDynamicSharedMemorySize, TILE_BYTES));
    CHECK(cudaMemcpy(speed, rock.data(), n * sizeof(float), cudaMemcpyHostToDevice));

    auto step = [&]() {
        for (int s = 0; s < SUBSTEPS; ++s) {
            wave<<<dim3(NX / TX, NY / TY), dim3(TX, TY), TILE_BYTES>>>(a, b, speed);
            std::swap(a, b);
        }
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < STEPS_PER_BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / STEPS_PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaMemcpy(host.data(), a, n * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0, square = 0;
    for (float v : host) {
        sum += fabs(v);
        square += double(v) * v;
    }
    printf("%.0f M cells/s\n", n * SUBSTEPS / times[times.size() / 2]);
    printf("{\"program\": \"cuda_seismic_tile\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], sum / n, square / n);
    return 0;
}
