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

struct Pair {
    int read_word, length, place[CANDIDATES], read;
};

constexpr int ROWS = 8;           // rows unrolled
constexpr unsigned BIAS = 16;     // a score s is kept as s + BIAS, so that nothing gets negative
constexpr unsigned TWO = 0x10001u;

__device__ __forceinline__ unsigned permute(unsigned table, unsigned selector) {
    unsigned d;  // with the sign mode of a nibble's top bit, which __byte_perm masks
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(d) : "r"(table), "r"(selector));
    return d;
}

// selector of the two candidates' bases at (low bits of) bytes 0 and 1: value byte and its sign, for each
__device__ __forceinline__ unsigned selector(unsigned x, int k) { return ((x >> (2 * k)) & 0x0303u) * 0x11u + 0x8080u; }

// A thread aligns a read to both candidates, 16 bits each in a word. Reads are sorted by length, longest first.
__global__ void __launch_bounds__(128, 5) align(const uint32_t* __restrict__ bases, const uint32_t* __restrict__ genome,
                                                const Pair* __restrict__ pairs, Scheme scheme, int* best_out,
                                                int* quality) {
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= READS) return;
    Pair pair = pairs[id];
    const unsigned zero = BIAS * TWO;
    const unsigned open = unsigned(scheme.open) * TWO;
    const unsigned extend = (unsigned(-scheme.extend) & 0xffffu) * TWO;
    const unsigned lose = (unsigned(-scheme.mismatch) & 0xffu) * 0x01010101u;
    const unsigned flip = (unsigned(scheme.match) ^ unsigned(-scheme.mismatch)) & 0xffu;

    unsigned h[BAND], ho[BAND], f[BAND], sel[BAND - 1 + ROWS];
#pragma unroll
    for (int b = 0; b < BAND; ++b) {
        h[b] = f[b] = zero;
        ho[b] = zero - open;
    }
    // bases place .. place + 14 are the window before the first row
    const uint32_t* g0 = genome + (pair.place[0] >> 4);
    const uint32_t* g1 = genome + (pair.place[1] >> 4);
    unsigned first0 = __funnelshift_r(g0[0], g0[1], (pair.place[0] & 15) * 2);
    unsigned first1 = __funnelshift_r(g1[0], g1[1], (pair.place[1] & 15) * 2);
#pragma unroll
    for (int b = 0; b < BAND - 1; ++b) {
        unsigned x = __byte_perm(first0 >> (8 * (b / 4)), first1 >> (8 * (b / 4)), 0x7740) & 0xffffu;
        sel[b] = selector(x, b % 4);
    }
    // from base place + 15 on, a word of each genome window for 16 rows
    int p0 = pair.place[0] + BAND - 1, p1 = pair.place[1] + BAND - 1;
    const int w0 = p0 >> 4, w1 = p1 >> 4, read = pair.read_word;
    unsigned low0 = genome[w0], high0 = genome[w0 + 1], low1 = genome[w1], high1 = genome[w1 + 1], next = bases[read];
    unsigned best = zero;
    int length = pair.length;
    for (int i = 0; i < length; i += 16) {
        unsigned window0 = __funnelshift_r(low0, high0, p0 * 2);
        unsigned window1 = __funnelshift_r(low1, high1, p1 * 2);
        unsigned word = next;
        // the words of the next 16 rows, long before they are used (the reads are padded by a word)
        low0 = high0;
        low1 = high1;
        int ahead = (i >> 4) + 1;
        high0 = genome[(p0 >> 4) + ahead + 1];
        high1 = genome[(p1 >> 4) + ahead + 1];
        next = bases[read + ahead];
#pragma unroll 1
        for (int part = 0; part < 16; part += ROWS) {
            if (i + part >= length) break;
            int rows = length - i - part;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                if (r >= rows) break;
                unsigned x = __byte_perm(window0, window1, r < 4 ? 0x40 : 0x51);
                sel[BAND - 1 + r] = selector(x, r % 4);
                unsigned q = (word >> (2 * r)) & 3;
                unsigned table = lose ^ (flip << (8 * q));
                unsigned e = 0;
#pragma unroll
                for (int b = 0; b < BAND; ++b) {
                    unsigned floor = zero;
                    // a gap from beyond the band never reaches a positive score
                    if (b == 1) e = ho[0];
                    else if (b > 1) e = __viaddmax_s16x2(e, extend, ho[b - 1]);
                    if (b < BAND - 1) f[b] = b == BAND - 2 ? ho[b + 1] : __viaddmax_s16x2(f[b + 1], extend, ho[b + 1]);
                    if (b == 0) floor = __vmaxs2(f[b], zero);
                    else if (b == BAND - 1) floor = __vmaxs2(e, zero);
                    else floor = __vimax3_s16x2(e, f[b], zero);
                    h[b] = __viaddmax_s16x2(h[b], permute(table, sel[r + b]), floor);
                    ho[b] = h[b] - open;  // no borrow: h >= BIAS > open in both halves
                    if (b & 1) best = __vimax3_s16x2(best, h[b - 1], h[b]);
                }
            }
            window0 >>= 2 * ROWS;
            window1 >>= 2 * ROWS;
            word >>= 2 * ROWS;
#pragma unroll
            for (int b = 0; b < BAND - 1; ++b) sel[b] = sel[b + ROWS];
        }
    }
    int first = int(best & 0xffffu) - int(BIAS), second = int(best >> 16) - int(BIAS);
    int top = max(first, second), other = min(first, second);
    int perfect = length * scheme.match;
    best_out[pair.read] = top;
    quality[pair.read] = min(60, (60 * (top - other)) / max(perfect, 1));
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

    // reads and places are the same in each step: sort once, so that the lanes of a warp end together
    std::vector<Pair> pairs(READS);
    for (int r = 0; r < READS; ++r) {
        const Job &a = jobs[r * CANDIDATES], &b = jobs[r * CANDIDATES + 1];
        pairs[r] = {a.read_word, a.length, {a.place, b.place}, r};
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.length > b.length; });
    bases.push_back(0);  // read ahead, never used

    uint32_t *d_bases, *d_genome;
    Pair* d_pairs;
    int *best, *quality;
    CHECK(cudaMalloc(&d_bases, bases.size() * sizeof(uint32_t)));
    CHECK(cudaMalloc(&d_genome, genome.size() * sizeof(uint32_t)));
    CHECK(cudaMalloc(&d_pairs, READS * sizeof(Pair)));
    CHECK(cudaMalloc(&best, READS * sizeof(int)));
    CHECK(cudaMalloc(&quality, READS * sizeof(int)));
    CHECK(cudaMemcpy(d_bases, bases.data(), bases.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_genome, genome.data(), genome.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_pairs, pairs.data(), READS * sizeof(Pair), cudaMemcpyHostToDevice));

    int done = 0;
    auto step = [&]() {
        Scheme scheme = {2 + done % 3, 3 + done % 5, 5 + done % 4, 1 + done % 2};
        align<<<(READS + 127) / 128, 128>>>(d_bases, d_genome, d_pairs, scheme, best, quality);
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
