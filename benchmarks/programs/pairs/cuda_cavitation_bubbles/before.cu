// Oscillation of a swarm of microbubbles in an ultrasound beam, and the sound that they send back to a receiver.
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

constexpr int kBubbles = 1 << 20;
constexpr int kThreads = 128;
constexpr float kFrame = 4.0f;          // microseconds advanced per step
constexpr float kDrive = 0.008f;        // beam amplitude, MPa
constexpr float kOmega = 6.2831853f * 1.0f;   // 1 MHz, rad per microsecond
constexpr float kAmbient = 0.1013f;     // MPa
constexpr float kTension = 0.072f;      // MPa um
constexpr float kViscosity = 0.002f;    // MPa us
constexpr float kDensity = 0.001f;      // MPa us^2 / um^2
constexpr float kPolytropic3 = 4.2f;    // three times the polytropic exponent
constexpr float kStepsPerPeriod = 96.0f;

struct Bubble {
    float rest;     // equilibrium radius, um
    float phase;    // phase of the beam at its place
    float range;    // distance to the receiver, mm
};

struct Swarm {
    float* rest;
    float* phase;
    float* range;
    float* radius;
    float* speed;
    float* accel;
};

__device__ __forceinline__ float natural_period(float rest) {
    float stiffness = kPolytropic3 * (kAmbient + 2.0f * kTension / rest) - 2.0f * kTension / rest;
    return 6.2831853f * rest * sqrtf(kDensity / stiffness);
}

__device__ __forceinline__ float wall_acceleration(float radius, float speed, float rest, float gas, float drive) {
    float inverse = __fdividef(1.0f, radius);
    float pressure = gas * __powf(rest * inverse, kPolytropic3) - kAmbient
                   - (2.0f * kTension + 4.0f * kViscosity * speed) * inverse - drive;
    return (pressure * (1.0f / kDensity) - 1.5f * speed * speed) * inverse;
}

// One frame of every bubble; the small ones ring faster and take shorter steps.
__global__ void advance_bubbles(Swarm swarm, float start) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= kBubbles) return;
    float rest = swarm.rest[b];
    float phase = swarm.phase[b];
    float radius = swarm.radius[b];
    float speed = swarm.speed[b];
    float gas = kAmbient + 2.0f * kTension / rest;
    int steps = int(ceilf(kFrame * kStepsPerPeriod / natural_period(rest)));
    float h = kFrame / float(steps);
    float turn = kOmega * h;
    float angle = kOmega * start + phase;
    float acceleration = 0.0f;
    for (int i = 0; i < steps; ++i) {
        float now = angle + turn * float(i);
        float first = wall_acceleration(radius, speed, rest, gas, kDrive * __sinf(now));
        float half_radius = fmaf(0.5f * h, speed, radius);
        float half_speed = fmaf(0.5f * h, first, speed);
        acceleration = wall_acceleration(half_radius, half_speed, rest, gas, kDrive * __sinf(now + 0.5f * turn));
        radius = fmaf(h, half_speed, radius);
        speed = fmaf(h, acceleration, speed);
    }
    swarm.radius[b] = radius;
    swarm.speed[b] = speed;
    swarm.accel[b] = acceleration;
}

// Sum of the spherical waves at the receiver, and the mean square wall speed.
__global__ void receive_echo(Swarm swarm, float* echo) {
    __shared__ float partial[2][kThreads / 32];
    float sound = 0.0f, motion = 0.0f;
    for (int b = blockIdx.x * blockDim.x + threadIdx.x; b < kBubbles; b += gridDim.x * blockDim.x) {
        float radius = swarm.radius[b], speed = swarm.speed[b];
        sound += radius * (radius * swarm.accel[b] + 2.0f * speed * speed) / swarm.range[b];
        motion += speed * speed;
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        sound += __shfl_down_sync(~0u, sound, offset);
        motion += __shfl_down_sync(~0u, motion, offset);
    }
    if ((threadIdx.x & 31) == 0) {
        partial[0][threadIdx.x >> 5] = sound;
        partial[1][threadIdx.x >> 5] = motion;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        float total = 0.0f;
        for (int w = 0; w < kThreads / 32; ++w) total += partial[threadIdx.x][w];
        atomicAdd(&echo[threadIdx.x], total / kBubbles);
    }
}

static float next_uniform(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return (float(state >> 8) + 0.5f) * (1.0f / 16777216.0f);
}

static std::vector<Bubble> inject_contrast_agent() {
    std::vector<Bubble> bubbles(kBubbles);
    uint32_t state = 90210u;
    for (Bubble& bubble : bubbles) {
        float u = next_uniform(state), v = next_uniform(state);
        float normal = std::sqrt(-2.0f * std::log(u)) * std::cos(6.2831853f * v);
        bubble.rest = std::min(std::max(3.0f * std::exp(0.26f * normal), 1.0f), 10.0f);
        float depth = next_uniform(state);
        bubble.phase = 6.2831853f * 20.0f * depth;
        bubble.range = 30.0f + 30.0f * depth;
    }
    return bubbles;
}

static Swarm upload(const std::vector<Bubble>& bubbles) {
    std::vector<float> rest, phase, range;
    for (const Bubble& bubble : bubbles) {
        rest.push_back(bubble.rest);
        phase.push_back(std::fmod(bubble.phase, 6.2831853f));
        range.push_back(bubble.range);
    }
    const size_t bytes = sizeof(float) * kBubbles;
    Swarm swarm;
    for (float** field : {&swarm.rest, &swarm.phase, &swarm.range, &swarm.radius, &swarm.speed, &swarm.accel}) {
        CHECK(cudaMalloc(field, bytes));
        CHECK(cudaMemset(*field, 0, bytes));
    }
    CHECK(cudaMemcpy(swarm.rest, rest.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(swarm.radius, rest.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(swarm.phase, phase.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(swarm.range, range.data(), bytes, cudaMemcpyHostToDevice));
    return swarm;
}

int main() {
    std::vector<Bubble> bubbles = inject_contrast_agent();
    Swarm swarm = upload(bubbles);
    float* echo;
    CHECK(cudaMalloc(&echo, 2 * sizeof(float)));
    CHECK(cudaMemset(echo, 0, 2 * sizeof(float)));

    int frame = 0;
    auto advance = [&]() {
        float start = std::fmod(frame++ * kFrame, 1.0f);
        advance_bubbles<<<(kBubbles + kThreads - 1) / kThreads, kThreads>>>(swarm, start);
        receive_echo<<<528, kThreads>>>(swarm, echo);
        CHECK(cudaGetLastError());
    };
    const int warmup = 20, blocks = 10, per_block = 15;
    for (int i = 0; i < warmup; ++i) advance();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) advance();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    float total[2];
    CHECK(cudaMemcpy(total, echo, sizeof(total), cudaMemcpyDeviceToHost));
    std::vector<float> radius(kBubbles);
    CHECK(cudaMemcpy(radius.data(), swarm.radius, sizeof(float) * kBubbles, cudaMemcpyDeviceToHost));
    double volume = 0.0;
    for (float r : radius) volume += double(r) * r * r;
    std::printf("{\"program\": \"cuda_cavitation_bubbles\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f]}\n",
                frame, median, double(total[1]) / frame, volume / kBubbles);
    return 0;
}
