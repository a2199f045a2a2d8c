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

__device__ __forceinline__ void advance(unsigned& s) {
    s ^= s << 13;
    s ^= s >> 17;
    s ^= s << 5;
}

__device__ __forceinline__ float unit(unsigned s) {
    // ((s >> 8) + 0.5f) / 2^24 with the same rounding, as one fma
    return fmaf(float(s >> 8), 1.0f / (1 << 24), 0.5f / (1 << 24));
}

__device__ __forceinline__ float factor(unsigned first, unsigned second, float daily, float drift) {
    float l, r, e;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(l) : "f"(unit(first)));
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(l * (-2.0f * 0.693147182f)));
    float z = r * __cosf(6.2831853f * unit(second));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fmaf(daily, z, drift) * 1.44269502f));
    return e;
}

constexpr int CHUNK = 4;

// The book is sorted by days, longest first: the lanes of a warp end together.
__global__ void __launch_bounds__(128) price(const Option* book, float* value, unsigned seed) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    Option o = book[t];
    unsigned s = (o.id + 1) * 2654435761u ^ seed;
    float sum = 0;
    float daily = o.sigma * 0.063f;
    float drift = -(0.5f * daily * daily);
    for (int path = 0; path < PATHS; ++path) {
        float spot = 100, average = 0;
        bool out = false;
        int day = 0;
        for (; day + CHUNK <= o.days; day += CHUNK) {
            // the random numbers of a chunk do not wait for the barrier test
            unsigned after[CHUNK];
            float p[CHUNK];
            unsigned n = s;
#pragma unroll
            for (int k = 0; k < CHUNK; ++k) {
                advance(n);
                unsigned first = n;
                advance(n);
                after[k] = n;
                p[k] = factor(first, n, daily, drift);
            }
            p[0] *= spot;
#pragma unroll
            for (int k = 1; k < CHUNK; ++k) p[k] *= p[k - 1];
            float high = p[0];
#pragma unroll
            for (int k = 1; k < CHUNK; ++k) high = fmaxf(high, p[k]);
            if (high > o.barrier) {  // knocked out: go on from the draws of that day
                s = after[CHUNK - 1];
#pragma unroll
                for (int k = CHUNK - 2; k >= 0; --k)
                    if (p[k] > o.barrier) s = after[k];
                out = true;
                break;
            }
#pragma unroll
            for (int k = 0; k < CHUNK; ++k) average += p[k];
            spot = p[CHUNK - 1];
            s = n;
        }
        if (!out) {
            for (; day < o.days; ++day) {
                advance(s);
                unsigned first = s;
                advance(s);
                spot *= factor(first, s, daily, drift);
                average += spot;
                if (spot > o.barrier) {
                    out = true;
                    break;
                }
            }
        }
        if (out) continue;
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
    // the book is the same in each step: sort it once so that a warp holds options of one length
    std::stable_sort(book.begin(), book.end(), [](const Option& a, const Option& b) { return a.days > b.days; });
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
