// Sunlight in a layered snowpack: Monte Carlo photon packets.
//
// Each step follows a batch of packets for one sun elevation.  A packet loses
// weight in every scattering event to the layer where it happens; what leaves
// through the surface is counted as reflected.  The host keeps the profile of
// absorbed light of all steps.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                            \
    do {                                                                       \
        cudaError_t status_ = (call);                                          \
        if (status_ != cudaSuccess) {                                          \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,             \
                         cudaGetErrorString(status_));                         \
            std::exit(1);                                                      \
        }                                                                      \
    } while (0)

constexpr int kLayers = 128;              // layers of 4 mm
constexpr int kBins = kLayers + 2;        // + reflected, + transmitted
constexpr int kReflected = kLayers;
constexpr int kTransmitted = kLayers + 1;
constexpr float kLayerThickness = 0.4f;   // cm
constexpr float kScattering = 4.0f;       // 1/cm
constexpr float kAlbedo = 0.985f;         // single scattering albedo
constexpr float kAsymmetry = 0.75f;
constexpr float kWeightUnit = 65536.0f;
constexpr int kMaxEvents = 64;
constexpr int kThreads = 256;
constexpr int kPackets = 1 << 22;

struct Generator {
    uint32_t state;
    __device__ explicit Generator(uint32_t seed) {
        state = seed * 747796405u + 2891336453u;
        next();
    }
    __device__ uint32_t next() {
        state = state * 747796405u + 2891336453u;
        uint32_t word = ((state >> ((state >> 28) + 4u)) ^ state) * 277803737u;
        return (word >> 22) ^ word;
    }
    __device__ float uniform() { return ((next() >> 8) + 0.5f) * (1.0f / 16777216.0f); }
};

// Henyey-Greenstein deflection, then the new vertical direction cosine.
__device__ float scatter(float mu, float u, float v) {
    const float g = kAsymmetry;
    const float ratio = (1.0f - g * g) / (1.0f - g + 2.0f * g * u);
    float cosine = (1.0f + g * g - ratio * ratio) / (2.0f * g);
    cosine = fminf(1.0f, fmaxf(-1.0f, cosine));
    const float sine = sqrtf(fmaxf(0.0f, 1.0f - cosine * cosine));
    const float side = sqrtf(fmaxf(0.0f, 1.0f - mu * mu));
    const float azimuth = __cosf(6.2831853f * v);
    return fminf(1.0f, fmaxf(-1.0f, mu * cosine + side * sine * azimuth));
}

__global__ void trace_packets(unsigned long long* tally, int packets, float sun_cosine,
                              uint32_t seed) {
    __shared__ unsigned int part[kBins];
    for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) part[bin] = 0;
    __syncthreads();
    const int packet = blockIdx.x * blockDim.x + threadIdx.x;
    if (packet < packets) {
        Generator random(seed ^ (uint32_t(packet) * 2654435761u));
        float depth = 0.0f;
        float mu = sun_cosine;
        unsigned int weight = (unsigned int)kWeightUnit;
        for (int event = 0; event < kMaxEvents; ++event) {
            depth -= mu * __logf(random.uniform()) / kScattering;
            if (depth < 0.0f) {
                atomicAdd(&part[kReflected], weight);
                weight = 0;
                break;
            }
            const int layer = int(depth / kLayerThickness);
            if (layer >= kLayers) {
                atomicAdd(&part[kTransmitted], weight);
                weight = 0;
                break;
            }
            const unsigned int lost = (unsigned int)(float(weight) * (1.0f - kAlbedo));
            atomicAdd(&part[layer], lost);
            weight -= lost;
            const float u = random.uniform();
            const float v = random.uniform();
            mu = scatter(mu, u, v);
        }
        if (weight > 0) {
            const int layer = min(kLayers - 1, int(depth / kLayerThickness));
            atomicAdd(&part[layer], weight);
        }
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
        if (part[bin]) atomicAdd(&tally[bin], (unsigned long long)part[bin]);
    }
}

class Snowpack {
  public:
    Snowpack() {
        CHECK(cudaMalloc(&tally_, kBins * sizeof(unsigned long long)));
        CHECK(cudaMemset(tally_, 0, kBins * sizeof(unsigned long long)));
    }
    ~Snowpack() { cudaFree(tally_); }

    void step(int number) {
        const float elevation = 0.35f + 0.9f * float(number % 24) / 24.0f;
        const int blocks = (kPackets + kThreads - 1) / kThreads;
        trace_packets<<<blocks, kThreads>>>(tally_, kPackets, std::sin(elevation),
                                            0x9e3779b9u * uint32_t(number + 1));
        CHECK(cudaGetLastError());
    }

    std::vector<unsigned long long> profile() const {
        std::vector<unsigned long long> host(kBins);
        CHECK(cudaMemcpy(host.data(), tally_, kBins * sizeof(unsigned long long),
                         cudaMemcpyDeviceToHost));
        return host;
    }

  private:
    unsigned long long* tally_ = nullptr;
};

int main() {
    constexpr int kWarmup = 8;
    constexpr int kBlocks = 10;
    constexpr int kSteps = 8;
    Snowpack snow;
    int number = 0;
    for (int i = 0; i < kWarmup; ++i) snow.step(number++);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int block = 0; block < kBlocks; ++block) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kSteps; ++i) snow.step(number++);
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> wall =
            std::chrono::steady_clock::now() - start;
        times.push_back(wall.count() / kSteps);
    }
    std::sort(times.begin(), times.end());

    const auto profile = snow.profile();
    const double sent = double(kPackets) * number * kWeightUnit;
    double absorbed = 0.0, mean_depth = 0.0;
    for (int layer = 0; layer < kLayers; ++layer) {
        absorbed += double(profile[layer]);
        mean_depth += double(profile[layer]) * (layer + 0.5) * kLayerThickness;
    }
    std::printf("{\"program\": \"cuda_snowlight\", \"steps\": %d, \"us\": %.2f, "
                "\"result\": [%.8f, %.8f, %.8f]}\n",
                number, times[times.size() / 2], absorbed / sent, mean_depth / absorbed,
                double(profile[kReflected]) / sent);
    return 0;
}
