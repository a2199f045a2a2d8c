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

// The next number of the generator, and from it ((s >> 8) + 0.5f) / (1 << 24), rounded the same,
// without the slow conversion of an integer: the upper 16 and lower 8 bits become mantissas.
__device__ __forceinline__ unsigned advance(unsigned s) {
    s ^= s << 13;
    s ^= s >> 17;
    s ^= s << 5;
    return s;
}

__device__ __forceinline__ float uniform(unsigned s) {
    float high = __uint_as_float(__byte_perm(s, 0x4B000000u, 0x7432));  // 2^23 + (s >> 16)
    float low = __uint_as_float(__byte_perm(s, 0x4B000000u, 0x7441));   // 2^23 + (s >> 8 & 255)
    float h = __fmaf_rn(high, 1.0f / 65536, -128.0f);                               // exact
    float l = __fmaf_rn(low, 1.0f / 16777216, (0.5f - 8388608.0f) / 16777216.0f);   // exact
    return __fadd_rn(h, l);
}

// All arguments here are normal numbers or zero, so no handling of denormals is needed.
__device__ __forceinline__ float log_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return __fmul_rn(y, 0.693147182f);
}

__device__ __forceinline__ float exp_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fmul_rn(x, 1.44269502f)));
    return y;
}

__device__ __forceinline__ float root(float x) {  // correctly rounded for normal x, without a branch
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    float g = __fmul_rn(x, y), h = __fmul_rn(y, 0.5f);
    float e = __fmaf_rn(-g, g, x);
    return fmaxf(__fmaf_rn(e, h, g), 0.0f);  // not a number for 0: then 0
}

__device__ __forceinline__ float growth(unsigned& s, float daily) {
    s = advance(s);
    float r = root(-2 * log_fast(uniform(s)));
    s = advance(s);
    float z = r * __cosf(6.2831853f * uniform(s));
    return exp_fast(daily * z - 0.5f * daily * daily);
}

// The book comes sorted by days: the threads of a warp run for about the same time.
__global__ void __launch_bounds__(128) price(const Option* __restrict__ book, float* __restrict__ value,
                                             unsigned seed) {
    constexpr int GROUP = 4;  // days whose random factors are computed together
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    Option o = book[t];
    unsigned s = (o.id + 1) * 2654435761u ^ seed;
    float sum = 0, daily = o.sigma * 0.063f;
    for (int path = 0; path < PATHS; ++path) {
        float spot = 100, average = 0;
        bool out = false;
        int day = 0;
        for (; day + GROUP <= o.days; day += GROUP) {
            float g[GROUP], at[GROUP];
            unsigned state[GROUP];
#pragma unroll
            for (int k = 0; k < GROUP; ++k) {
                g[k] = growth(s, daily);
                state[k] = s;
            }
            float top = 0;
#pragma unroll
            for (int k = 0; k < GROUP; ++k) {
                spot *= g[k];
                average += spot;
                at[k] = spot;
                top = fmaxf(top, spot);
            }
            if (top > o.barrier) {  // knocked out: go on from the generator's state of that day
#pragma unroll
                for (int k = GROUP - 1; k >= 0; --k)
                    if (at[k] > o.barrier) s = state[k];
                out = true;
                break;
            }
        }
        if (!out)
            for (; day < o.days; ++day) {
                spot *= growth(s, daily);
                average += spot;
                if (spot > o.barrier) {
                    out = true;
                    break;
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
    // longest first, so that a warp's options end together and the long ones do not start last
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
