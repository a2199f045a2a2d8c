// Calibration of alignment scores: banded Smith-Waterman of reads against two candidate places each,
// once for every scoring scheme of a sweep.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

constexpr int READS = 1 << 19;
constexpr int CANDIDATES = 2;
constexpr int JOBS = READS * CANDIDATES;
constexpr int GENOME = 1 << 26;
constexpr int BAND = 16;
constexpr int SHORTEST = 40;
constexpr int LONGEST = 1500;
constexpr int WARMUP = 10;
constexpr int BLOCKS = 10;
constexpr int STEPS_PER_BLOCK = 30;

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t e = (call);                                                       \
        if (e != cudaSuccess) {                                                       \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

struct Scheme {
    int match, mismatch, open, extend;
};

struct Job {
    int read_word;  // first packed word of the read
    int length;
    int place;      // first base of the window in the genome
};

// A read with its two candidate places.
struct Work {
    int read_word, length, place[CANDIDATES], read;
};

constexpr int SCALE = 4;             // scores are held times 4, see the products with bit 0, 1 or 2 below
constexpr int THREADS = 128;
constexpr int LIMIT_SHARED = 48 << 10;  // 4 blocks on an SM: the longest reads start first and get a fair share

__host__ __device__ __forceinline__ unsigned pair(int v) { return (unsigned(v) & 0xffffu) * 0x10001u; }

// 16 bases of 2 bits: their low bits to bits 0-15, their high bits to bits 16-31.
__host__ __device__ __forceinline__ uint32_t planes(uint32_t x) {
    uint32_t t;
    t = (x ^ (x >> 1)) & 0x22222222u; x ^= t ^ (t << 1);
    t = (x ^ (x >> 2)) & 0x0c0c0c0cu; x ^= t ^ (t << 2);
    t = (x ^ (x >> 4)) & 0x00f000f0u; x ^= t ^ (t << 4);
    t = (x ^ (x >> 8)) & 0x0000ff00u; x ^= t ^ (t << 8);
    return x;
}

__host__ __device__ __forceinline__ uint32_t funnel(uint32_t low, uint32_t high, int shift) {
    return uint32_t(((uint64_t(high) << 32) | low) >> shift);
}

// Both candidates of a read at once, in the two 16-bit halves of each register.
// h is at level 0; e and f are held plus top, top = max(open, mismatch), so no half is ever negative before
// the last maximum, and plain 32-bit sums do not carry between the halves.
template <bool OPEN_ABOVE>
__host__ __device__ __forceinline__ unsigned align_pair(const uint32_t* __restrict__ bases, const uint32_t* __restrict__ genome,
                              const Work& work, const Scheme& scheme, unsigned one) {
    const int open = scheme.open * SCALE, mismatch = scheme.mismatch * SCALE;
    const unsigned extend = pair(-scheme.extend * SCALE);
    const unsigned top = pair(-(OPEN_ABOVE ? open : mismatch));
    const unsigned lift = pair(OPEN_ABOVE ? open - mismatch : mismatch - open);
    const unsigned gain = (scheme.match + scheme.mismatch) * SCALE;
    const unsigned gains[3] = {gain, gain >> 1, gain >> 2};

    // h[b] goes to the diagonal of the next row, g[b] to the gaps; they differ by lift.
    unsigned h[BAND], g[BAND], f[BAND];
#pragma unroll
    for (int b = 0; b < BAND; ++b) {
        h[b] = OPEN_ABOVE ? lift : 0;
        g[b] = OPEN_ABOVE ? 0 : lift;
        f[b] = 0;
    }
    uint32_t w0, w1;
    int shift0, shift1;
    const uint32_t *next0, *next1;
    uint32_t low0, low1;
    {
        int p = work.place[0], q = work.place[1];
        uint32_t x = planes(funnel(genome[p >> 4], genome[(p >> 4) + 1], (p & 15) * 2));
        uint32_t y = planes(funnel(genome[q >> 4], genome[(q >> 4) + 1], (q & 15) * 2));
        w0 = ((x & 0x7fffu) << 1) | ((y & 0x7fffu) << 17);
        w1 = (((x >> 16) & 0x7fffu) << 1) | (((y >> 16) & 0x7fffu) << 17);
        p += BAND - 1;
        q += BAND - 1;
        shift0 = (p & 15) * 2;
        shift1 = (q & 15) * 2;
        next0 = genome + (p >> 4);
        next1 = genome + (q >> 4);
        low0 = *next0++;
        low1 = *next1++;
    }
    const uint32_t* read = bases + work.read_word;
    const uint32_t* last = read + ((work.length - 1) >> 4);
    uint32_t word = *read, high0 = *next0, high1 = *next1;
    unsigned best = 0;
    for (int left_over = work.length; left_over > 0; left_over -= 16) {
        uint32_t x = planes(funnel(low0, high0, shift0));
        uint32_t y = planes(funnel(low1, high1, shift1));
        const uint32_t n0 = (x & 0xffffu) | (y << 16), n1 = (x >> 16) | (y & 0xffff0000u);
        low0 = high0;
        low1 = high1;
        uint32_t now = word;
        // for the next 16 rows, loaded early
        high0 = *++next0;
        high1 = *++next1;
        if (read < last) word = *++read;
        const int end = left_over < 16 ? 16 - left_over : 0;
#pragma unroll 1
        for (int k = 15; k >= end; --k) {
            const uint32_t q0 = 0u - (now & 1), q1 = 0u - ((now >> 1) & 1);
            now >>= 2;
            w0 = ((w0 >> 1) & 0x7fff7fffu) | ((n0 << k) & 0x80008000u);
            w1 = ((w1 >> 1) & 0x7fff7fffu) | ((n1 << k) & 0x80008000u);
            uint32_t same = ~((w0 ^ q0) | (w1 ^ q1));  // bits b and 16 + b: cell b of the candidates
            unsigned e = 0, gap_from = 0, before = 0;
#pragma unroll
            for (int b = 0; b < BAND; ++b) {
                if (b && b % 3 == 0) same >>= 3;
                const unsigned diagonal = (same & (0x10001u << (b % 3))) * gains[b % 3] + h[b];
                if (b) e = __viaddmax_s16x2(e, extend, gap_from);
                const unsigned gap = b + 1 < BAND ? __viaddmax_s16x2(f[b + 1], extend, g[b + 1]) : 0;
                const unsigned over = __vimax3_s16x2(gap, diagonal, e);
                const unsigned value = __viaddmax_s16x2(over, top, 0);
                f[b] = gap;
                const unsigned lifted = value * one + lift;
                h[b] = OPEN_ABOVE ? lifted : value;
                g[b] = OPEN_ABOVE ? value : lifted;
                gap_from = g[b];
                if (b & 1) best = __vimax3_s16x2(best, before, value);
                before = value;
            }
        }
    }
    return best;
}

template <bool OPEN_ABOVE>
__global__ void __launch_bounds__(THREADS) align(const uint32_t* __restrict__ bases,
                                                 const uint32_t* __restrict__ genome,
                                                 const Work* __restrict__ works, Scheme scheme, unsigned one,
                                                 int* __restrict__ best, int* __restrict__ quality) {
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= READS) return;
    const Work work = works[id];
    const unsigned scores = align_pair<OPEN_ABOVE>(bases, genome, work, scheme, one);
    const int first = int(scores & 0xffffu) / SCALE, second = int(scores >> 16) / SCALE;
    int top = max(first, second), other = min(first, second);
    int perfect = work.length * scheme.match;
    best[work.read] = top;
    quality[work.read] = min(60, (60 * (top - other)) / max(perfect, 1));
}

int main() {
    std::mt19937 random(5);
    std::vector<uint32_t> genome(GENOME / 16);
    for (auto& w : genome) w = random();
    auto base_at = [&](int p) { return (genome[p >> 4] >> ((p & 15) * 2)) & 3; };

    std::exponential_distribution<float> extra(1.0f / 160);
    std::uniform_int_distribution<int> anywhere(0, GENOME - 4 * LONGEST);
    std::vector<uint32_t> bases;
    std::vector<Job> jobs;
    jobs.reserve(JOBS);
    for (int r = 0; r < READS; ++r) {
        int length = std::min(LONGEST, SHORTEST + int(extra(random)));
        int place = anywhere(random), other = anywhere(random);
        int start = int(bases.size());
        int words = (length + 15) / 16;
        for (int w = 0; w < words; ++w) {
            uint32_t word = 0;
            int p = place + BAND / 2 + 16 * w;
            for (int k = 0; k < 16; ++k) word |= base_at(p + k) << (2 * k);
            uint32_t noise = random();
            if (noise & 1) word ^= ((noise >> 8) & 3) << (2 * ((noise >> 1) & 15));
            bases.push_back(word);
        }
        jobs.push_back({start, length, place});
        jobs.push_back({start, length, other});
    }
    printf("%d reads, %.1f bases on average\n", READS,
           std::accumulate(jobs.begin(), jobs.end(), 0.0, [](double s, const Job& j) { return s + j.length; }) / JOBS);

    uint32_t *d_bases, *d_genome;
    // Lengths are the same in each step: warps get reads of like length, the longest start first.
    std::vector<Work> works(READS);
    for (int r = 0; r < READS; ++r) {
        const Job &a = jobs[r * CANDIDATES], &b = jobs[r * CANDIDATES + 1];
        works[r] = {a.read_word, a.length, {a.place, b.place}, r};
    }
    std::stable_sort(works.begin(), works.end(), [](const Work& x, const Work& y) { return x.length > y.length; });
    Work* d_works;
    int *best, *quality;
    CHECK(cudaMalloc(&d_bases, bases.size() * sizeof(uint32_t)));
    CHECK(cudaMalloc(&d_genome, genome.size() * sizeof(uint32_t)));
    CHECK(cudaMalloc(&d_works, READS * sizeof(Work)));
    CHECK(cudaMalloc(&best, READS * sizeof(int)));
    CHECK(cudaMalloc(&quality, READS * sizeof(int)));
    CHECK(cudaMemcpy(d_bases, bases.data(), bases.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_genome, genome.data(), genome.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_works, works.data(), READS * sizeof(Work), cudaMemcpyHostToDevice));
    CHECK(cudaFuncSetAttribute(align<true>, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    CHECK(cudaFuncSetAttribute(align<false>, cudaFuncAttributePreferredSharedMemoryCarveout, 100));

    int done = 0;
    auto step = [&]() {
        Scheme scheme = {2 + done % 3, 3 + done % 5, 5 + done % 4, 1 + done % 2};
        auto kernel = scheme.open >= scheme.mismatch ? align<true> : align<false>;
        kernel<<<(READS + THREADS - 1) / THREADS, THREADS, LIMIT_SHARED>>>(d_bases, d_genome, d_works, scheme, 1u,
                                                                           best, quality);
        ++done;
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
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double us = times[times.size() / 2];
    std::vector<int> h_best(READS), h_quality(READS);
    CHECK(cudaMemcpy(h_best.data(), best, READS * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(h_quality.data(), quality, READS * sizeof(int), cudaMemcpyDeviceToHost));
    double total = 0, sure = 0;
    for (int v : h_best) total += v;
    for (int v : h_quality) sure += v >= 30;
    printf("%.2f M alignments/s\n", JOBS / us);
    printf("{\"program\": \"cuda_read_rescoring\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, us, total / READS, sure / READS);
    return 0;
}
