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

// (s >> 8) + 0.5f, built from the bytes of s: the same bits as the conversion, without its slow unit.
__device__ __forceinline__ float half_step(unsigned s, uint2 base) {
    float high = __uint_as_float(__byte_perm(s, base.x, 0x7432));  // 2^31 + (s >> 16) * 2^8
    float low = __uint_as_float(__byte_perm(s, base.y, 0x7514));   // 2^15 + byte 1 of s + 0.5
    return __fadd_rn(__fadd_rn(high, -2147516416.0f), low);
}

__device__ __forceinline__ unsigned next(unsigned s) {
    s ^= s << 13;
    s ^= s >> 17;
    s ^= s << 5;
    return s;
}

__device__ __forceinline__ float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float sqrt_fast(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float cos_fast(float x) {
    float y;
    asm("cos.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Factor of the spot in a day; a and b are daily and -daily^2 / 2, times log2(e).
__device__ __forceinline__ float growth(unsigned& s, float a, float b, uint2 base) {
    s = next(s);
    float r = sqrt_fast(-1.38629436f * log2_fast(half_step(s, base) * (1.0f / (1 << 24))));
    s = next(s);
    float z = r * cos_fast(half_step(s, base) * (6.2831853f / (1 << 24)));
    return exp2_fast(fmaf(a, z, b));
}

constexpr int CHUNK = 4;

// The book is sorted by days, longest first, so lanes of a warp run loops of like length.
__global__ void __launch_bounds__(128) price(const Option* __restrict__ book, float* __restrict__ value,
                                             unsigned seed, uint2 base) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    Option o = book[t];
    unsigned s = (o.id + 1) * 2654435761u ^ seed;
    float sum = 0;
    const float daily = o.sigma * 0.063f;
    const float a = daily * 1.44269504f, b = -0.5f * daily * daily * 1.44269504f;
    for (int path = 0; path < PATHS; ++path) {
        float spot = 100, average = 0;
        int day = 0;
        bool out = false;
        // A chunk of days without a branch between them; the state goes back to the day of the knock-out.
        for (; day + CHUNK <= o.days; day += CHUNK) {
            unsigned state[CHUNK];
            float at[CHUNK];
#pragma unroll
            for (int k = 0; k < CHUNK; ++k) {
                spot *= growth(s, a, b, base);
                average += spot;
                state[k] = s;
                at[k] = spot;
            }
            float top = at[0];
#pragma unroll
            for (int k = 1; k < CHUNK; ++k) top = fmaxf(top, at[k]);
            if (top > o.barrier) {
#pragma unroll
                for (int k = CHUNK - 1; k >= 0; --k)
                    if (at[k] > o.barrier) s = state[k];
                out = true;
                break;
            }
        }
        if (!out) {
            for (; day < o.days; ++day) {
                spot *= growth(s, a, b, base);
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
    // Days are the same in each step: warps get options of like length, the longest start first.
    std::stable_sort(book.begin(), book.end(), [](const Option& x, const Option& y) {
        return x.days != y.days ? x.days > y.days : x.kind < y.kind;
    });
    Option* options;
    float* value;
    CHECK(cudaMalloc(&options, OPTIONS * sizeof(Option)));
    CHECK(cudaMalloc(&value, OPTIONS * sizeof(float)));
    CHECK(cudaMemcpy(options, book.data(), OPTIONS * sizeof(Option), cudaMemcpyHostToDevice));
    unsigned count = 0;

    auto step = [&]() { price<<<OPTIONS / 128, 128>>>(options, value, ++count * 977u, make_uint2(0x4f000000u, 0x47000080u)); };

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
