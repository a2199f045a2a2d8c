// Clean raw CCD frames of a survey telescope: a running median over a square
// window finds hot pixels and cosmic-ray hits, which are replaced by it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t err_ = (call);                                           \
        if (err_ != cudaSuccess) {                                           \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                \
                    cudaGetErrorString(err_));                               \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

constexpr int WIDTH = 4096;
constexpr int HEIGHT = 3072;
constexpr int FRAMES = 3;
constexpr int WARMUP = 6;
constexpr int BLOCKS = 8;
constexpr int BLOCK_STEPS = 5;

template <int COUNT>
__device__ __forceinline__ float median_of(float (&window)[COUNT])
{
    // Selection up to the middle element is enough.
    constexpr int middle = COUNT / 2;
#pragma unroll
    for (int i = 0; i <= middle; ++i) {
        float low = window[i];
#pragma unroll
        for (int j = i + 1; j < COUNT; ++j) {
            float other = window[j];
            window[j] = fmaxf(low, other);
            low = fminf(low, other);
        }
        window[i] = low;
    }
    return window[middle];
}

// The window has a fixed size, so that it lives in registers.
template <int RADIUS>
__global__ void despeckle(const float *__restrict__ raw, float *__restrict__ clean,
                          unsigned char *__restrict__ flags, int width, int height,
                          float read_noise, float gain, float sigmas)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;

    constexpr int SIDE = 2 * RADIUS + 1;
    float window[SIDE * SIDE];
#pragma unroll
    for (int dy = -RADIUS; dy <= RADIUS; ++dy) {
        int row = min(max(y + dy, 0), height - 1);
#pragma unroll
        for (int dx = -RADIUS; dx <= RADIUS; ++dx) {
            int col = min(max(x + dx, 0), width - 1);
            window[(dy + RADIUS) * SIDE + dx + RADIUS] = __ldg(&raw[row * width + col]);
        }
    }
    float background = median_of(window);

    float value = raw[y * width + x];
    float noise = sqrtf(read_noise * read_noise + fmaxf(background, 0.0f) / gain);
    bool hit = fabsf(value - background) > sigmas * noise;
    clean[y * width + x] = hit ? background : value;
    flags[y * width + x] = hit;
}

static std::vector<float> expose(unsigned seed)
{
    unsigned state = seed;
    std::vector<float> frame(size_t(WIDTH) * HEIGHT);
    for (int y = 0; y < HEIGHT; ++y)
        for (int x = 0; x < WIDTH; ++x) {
            // The sum of three uniforms is normal enough for the sky.
            state = state * 1664525u + 1013904223u;
            float n = ((state >> 22) + ((state >> 12) & 1023) + ((state >> 2) & 1023)) / 1024.0f - 1.5f;
            float sky = 200.0f + 0.01f * x + 0.02f * y;
            frame[size_t(y) * WIDTH + x] = sky + 20.0f * n;
        }
    for (int k = 0; k < 40000; ++k) {
        state = state * 1664525u + 1013904223u;
        size_t at = (size_t(state) * frame.size()) >> 32;
        frame[at] += 800.0f + (state >> 3 & 1023);
    }
    return frame;
}

int main()
{
    const size_t pixels = size_t(WIDTH) * HEIGHT;
    float *raw, *clean;
    unsigned char *flags;
    CHECK(cudaMalloc(&raw, FRAMES * pixels * sizeof(float)));
    CHECK(cudaMalloc(&clean, pixels * sizeof(float)));
    CHECK(cudaMalloc(&flags, pixels));
    for (int f = 0; f < FRAMES; ++f) {
        std::vector<float> frame = expose(11 + f);
        CHECK(cudaMemcpy(raw + f * pixels, frame.data(), pixels * sizeof(float),
                         cudaMemcpyHostToDevice));
    }

    int step = 0;
    dim3 block(32, 8), grid((WIDTH + 31) / 32, (HEIGHT + 7) / 8);
    auto run = [&](int count) {
        for (int i = 0; i < count; ++i, ++step)
            despeckle<2><<<grid, block>>>(raw + (step % FRAMES) * pixels, clean, flags,
                                       WIDTH, HEIGHT, 6.0f, 1.6f, 6.0f);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    };

    run(WARMUP);
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        run(BLOCK_STEPS);
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / BLOCK_STEPS);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> image(pixels);
    std::vector<unsigned char> hits(pixels);
    CHECK(cudaMemcpy(image.data(), clean, pixels * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(hits.data(), flags, pixels, cudaMemcpyDeviceToHost));
    double mean = 0.0, found = 0.0;
    for (size_t i = 0; i < pixels; ++i) {
        mean += image[i];
        found += hits[i];
    }
    printf("{\"program\": \"cuda_ccd_despeckle\", \"steps\": %d, \"us\": %.2f, "
           "\"result\": [%.8g, %.8g]}\n",
           step, (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]) / 2, mean / pixels, found);
    return 0;
}
