// Price a book of barrier options by Monte Carlo, a thread for each option.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int OPTIONS = 1 << 20;
constexpr int PATHS = 4;
constexpr int WARMUP = 3;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 6;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

struct Option {
    float strike, barrier, sigma;
    int days;   // days to maturity: a step each
    int kind;   // 0 call, 1 put, 2 asian
    int id;
};

__device__ float uniform(unsigned& s) {
    s ^= s << 13;
    s ^= s >> 17;
    s ^= s << 5;
    return ((s >> 8) + 0.5f) * (1.0f / (1 << 24));
}

__global__ void price(const Option* book, float* value, unsigned seed) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    Option o = book[t];
    unsigned s = (o.id + 1) * 2654435761u ^ seed;
    float sum = 0;
    for (int path = 0; path < PATHS; ++path) {
        float spot = 100, average = 0, daily = o.sigma * 0.063f;
        for (int day = 0; day < o.days; ++day) {
            float r = sqrtf(-2 * __logf(uniform(s)));
            float z = r * __cosf(6.2831853f * uniform(s));
            spot *= __expf(daily * z - 0.5f * daily * daily);
            average += spot;
            if (spot > o.barrier) break;  // knocked out
        }
        if (spot > o.barrier) continue;
        if (o.kind == 0) sum += fmaxf(spot - o.strike, 0.0f);
        else if (o.kind == 1) sum += fmaxf(o.strike - spot, 0.0f);
        else sum += fmaxf(average / o.days - o.strike, 0.0f);
    }
    value[o.id] = sum / PATHS;
}

int main() {
    std::vector<Option> book(OPTIONS);
    unsigned state = 3;
    auto draw = [&]() {
        state = state * 1664525u + 1013904223u;
        return state >> 8;
    };
    for (int i = 0; i < OPTIONS; ++i) {
        // most options end soon, some run for years
        int days = draw() % 16 ? 5 + draw() % 60 : 1000 + draw() % 1500;
        book[i] = {90.0f + draw() % 20, 300.0f, 0.1f + (draw() % 20) * 0.01f, days, int(draw() % 3), i};
    }
    // Options of like maturity side by side, so that the lanes of a warp agree; the longest first, so
    // that none of them starts late. Each option keeps its id, and with it its seed and its place.
    std::stable_sort(book.begin(), book.end(),
                     [](const Option& a, const Option& b) { return a.days > b.days; });
    Option* options;
    float* value;
    CHECK(cudaMalloc(&options, OPTIONS * sizeof(Option)));
    CHECK(cudaMalloc(&value, OPTIONS * sizeof(float)));
    CHECK(cudaMemcpy(options, book.data(), OPTIONS * sizeof(Option), cudaMemcpyHostToDevice));
    unsigned count = 0;

    auto step = [&]() { price<<<OPTIONS / 128, 128>>>(options, value, ++count * 977u); };

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
    std::vector<float> end(OPTIONS);
    CHECK(cudaMemcpy(end.data(), value, OPTIONS * sizeof(float), cudaMemcpyDeviceToHost));
    double mean = 0, square = 0;
    for (float v : end) {
        mean += v;
        square += double(v) * v;
    }
    printf("mean value %.4f\n", mean / OPTIONS);
    printf("{\"program\": \"cuda_barrier_options\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           int(count), times[times.size() / 2], mean / OPTIONS, square / OPTIONS);
    return 0;
}
