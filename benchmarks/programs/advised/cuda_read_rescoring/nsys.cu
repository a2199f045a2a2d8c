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

// A read with its two candidate places; sorted by length on the host, once.
struct Pair {
    int read_word, length, place0, place1;
};

__device__ __forceinline__ uint32_t both(int v) { return (uint32_t(v) & 0xffff) * 0x10001u; }

// Byte select; the top bit of a selector's nibble replicates the sign of the byte.
__device__ __forceinline__ uint32_t permute(uint32_t table, uint32_t selector) {
    uint32_t out;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(table), "r"(selector));
    return out;
}

// One thread aligns a read at both of its places: the two scores lie in the halves of each word.
// Scores are kept with ZERO added, so that subtracting the opening of a gap never borrows.
__global__ void __launch_bounds__(128) align(const uint32_t* __restrict__ bases, const uint32_t* __restrict__ genome,
                                             const Pair* __restrict__ pairs, const int* __restrict__ order,
                                             Scheme scheme, int* __restrict__ best_of, int* __restrict__ quality_of) {
    static_assert(CANDIDATES == 2 && BAND == 16, "packed halves");
    constexpr int ZERO = 64, ROWS = 4;
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= READS) return;
    const Pair job = pairs[id];
    const uint32_t zero = both(ZERO), open = both(scheme.open), no_extend = both(-scheme.extend);
    // ho holds h - open, so the scores in the table hold + open.
    const uint32_t miss = uint32_t(uint8_t(scheme.open - scheme.mismatch)) * 0x01010101u;
    const uint32_t flip = uint8_t(scheme.open - scheme.mismatch) ^ uint8_t(scheme.open + scheme.match);

    uint32_t ho[BAND + 1], f[BAND + 1], target[BAND + ROWS - 1];
#pragma unroll
    for (int b = 0; b <= BAND; ++b) {
        ho[b] = zero - open;
        f[b] = zero;
    }
    auto code = [](uint32_t w0, uint32_t w1) {  // selects a score and its sign for each half
        return ((w0 & 3) | ((w1 & 3) << 8)) * 0x11u + 0x8080u;
    };
#pragma unroll
    for (int b = 0; b < BAND - 1; ++b) {
        int p0 = job.place0 + b, p1 = job.place1 + b;
        target[b] = code(genome[p0 >> 4] >> ((p0 & 15) * 2), genome[p1 >> 4] >> ((p1 & 15) * 2));
    }
    const uint32_t* g0 = genome + ((job.place0 + BAND - 1) >> 4);
    const uint32_t* g1 = genome + ((job.place1 + BAND - 1) >> 4);
    const int shift0 = ((job.place0 + BAND - 1) & 15) * 2, shift1 = ((job.place1 + BAND - 1) & 15) * 2;
    uint32_t low0 = *g0++, low1 = *g1++;
    const uint32_t* read = bases + job.read_word;

    uint32_t best = zero;
    for (int i = 0; i < job.length; i += 16) {
        uint32_t word = *read++;
        uint32_t high0 = *g0++, high1 = *g1++;
        uint32_t w0 = __funnelshift_r(low0, high0, shift0), w1 = __funnelshift_r(low1, high1, shift1);
        low0 = high0;
        low1 = high1;
        const int end = min(16, job.length - i);
#pragma unroll 1
        for (int r = 0; r < end; r += ROWS) {
#pragma unroll
            for (int j = 0; j < ROWS; ++j) {
                target[BAND - 1 + j] = code(w0, w1);
                w0 >>= 2;
                w1 >>= 2;
                // Rows past the end only have mismatches, which cannot raise the best score.
                uint32_t table = miss ^ ((r + j < end ? flip : 0u) << ((word & 3) * 8));
                word >>= 2;
                uint32_t e = zero, lo = zero - open, previous = 0;
#pragma unroll
                for (int b = 0; b < BAND; ++b) {
                    uint32_t score = permute(table, target[b + j]);
                    e = __viaddmax_s16x2(e, no_extend, lo);
                    uint32_t gap = __viaddmax_s16x2(f[b + 1], no_extend, ho[b + 1]);
                    f[b] = gap;
                    uint32_t left = __vimax3_s16x2(__viaddmax_s16x2(ho[b], score, gap), e, zero);
                    lo = left - open;
                    ho[b] = lo;
                    if (b & 1) best = __vimax3_s16x2(best, previous, left);
                    previous = left;
                }
            }
#pragma unroll
            for (int b = 0; b < BAND - 1; ++b) target[b] = target[b + ROWS];
        }
    }
    int first = int(best & 0xffff) - ZERO, second = int(best >> 16) - ZERO;
    int top = max(first, second), other = min(first, second);
    int perfect = job.length * scheme.match;
    int r = order[id];
    best_of[r] = top;
    quality_of[r] = min(60, (60 * (top - other)) / max(perfect, 1));
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

    // Longest reads first: the reads of a warp have nearly the same length.
    std::vector<int> order(READS);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return jobs[a * CANDIDATES].length > jobs[b * CANDIDATES].length; });
    std::vector<Pair> pairs;
    pairs.reserve(READS);
    for (int r : order) {
        const Job &a = jobs[r * CANDIDATES], &b = jobs[r * CANDIDATES + 1];
        pairs.push_back({a.read_word, a.length, a.place, b.place});
    }

    uint32_t *d_bases, *d_genome;
    Pair* d_pairs;
    int *d_order, *best, *quality;
    CHECK(cudaMalloc(&d_bases, bases.size() * sizeof(uint32_t)));
    CHECK(cudaMalloc(&d_genome, genome.size() * sizeof(uint32_t)));
    CHECK(cudaMalloc(&d_pairs, READS * sizeof(Pair)));
    CHECK(cudaMalloc(&d_order, READS * sizeof(int)));
    CHECK(cudaMalloc(&best, READS * sizeof(int)));
    CHECK(cudaMalloc(&quality, READS * sizeof(int)));
    CHECK(cudaMemcpy(d_bases, bases.data(), bases.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_genome, genome.data(), genome.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_pairs, pairs.data(), READS * sizeof(Pair), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_order, order.data(), READS * sizeof(int), cudaMemcpyHostToDevice));

    int done = 0;
    auto step = [&]() {
        Scheme scheme = {2 + done % 3, 3 + done % 5, 5 + done % 4, 1 + done % 2};
        align<<<(READS + 127) / 128, 128>>>(d_bases, d_genome, d_pairs, d_order, scheme, best, quality);
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
