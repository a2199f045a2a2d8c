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

// A job as the alignment takes it: sorted by length, so that the lanes of a warp loop equally long.
struct alignas(16) Work {
    int read_word, length, place;
    int id;  // where the score belongs
};

__global__ void align(const uint32_t* __restrict__ bases, const uint32_t* __restrict__ genome,
                      const Work* __restrict__ works, Scheme scheme, int* __restrict__ scores) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= JOBS) return;
    Work job = works[index];
    int h[BAND + 1], f[BAND + 1];
#pragma unroll
    for (int b = 0; b <= BAND; ++b) h[b] = f[b] = 0;
    uint32_t window = 0;
    for (int b = 0; b < BAND - 1; ++b) {
        int p = job.place + b;
        uint32_t base = (genome[p >> 4] >> ((p & 15) * 2)) & 3;
        window |= base << (2 * b + 2);
    }
    int best = 0;
    uint32_t word = 0;
    for (int i = 0; i < job.length; ++i) {
        if ((i & 15) == 0) word = bases[job.read_word + (i >> 4)];
        uint32_t q = word & 3;
        word >>= 2;
        int p = job.place + i + BAND - 1;
        window = (window >> 2) | (((genome[p >> 4] >> ((p & 15) * 2)) & 3) << 30);
        int e = 0, left = 0;
#pragma unroll
        for (int b = 0; b < BAND; ++b) {
            int diagonal = h[b] + (((window >> (2 * b)) & 3) == q ? scheme.match : -scheme.mismatch);
            e = max(e - scheme.extend, left - scheme.open);
            int gap = max(f[b + 1] - scheme.extend, h[b + 1] - scheme.open);
            f[b] = gap;
            left = max(max(diagonal, 0), max(e, gap));
            h[b] = left;
            best = max(best, left);
        }
    }
    scores[job.id] = best;
}

__global__ void pick(const int* scores, const Job* jobs, Scheme scheme, int* best, int* quality) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= READS) return;
    int first = scores[r * CANDIDATES], second = scores[r * CANDIDATES + 1];
    int top = max(first, second), other = min(first, second);
    int perfect = jobs[r * CANDIDATES].length * scheme.match;
    best[r] = top;
    quality[r] = min(60, (60 * (top - other)) / max(perfect, 1));
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

    // The jobs are the same in every step: order them once, the longest first.
    std::vector<int> order(JOBS);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return jobs[a].length > jobs[b].length; });
    std::vector<Work> works;
    works.reserve(JOBS);
    for (int id : order) works.push_back({jobs[id].read_word, jobs[id].length, jobs[id].place, id});

    uint32_t *d_bases, *d_genome;
    Job* d_jobs;
    Work* d_works;
    int *scores, *best, *quality;
    CHECK(cudaMalloc(&d_bases, bases.size() * sizeof(uint32_t)));
    CHECK(cudaMalloc(&d_genome, genome.size() * sizeof(uint32_t)));
    CHECK(cudaMalloc(&d_jobs, JOBS * sizeof(Job)));
    CHECK(cudaMalloc(&d_works, JOBS * sizeof(Work)));
    CHECK(cudaMalloc(&scores, JOBS * sizeof(int)));
    CHECK(cudaMalloc(&best, READS * sizeof(int)));
    CHECK(cudaMalloc(&quality, READS * sizeof(int)));
    CHECK(cudaMemcpy(d_bases, bases.data(), bases.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_genome, genome.data(), genome.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_works, works.data(), JOBS * sizeof(Work), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_jobs, jobs.data(), JOBS * sizeof(Job), cudaMemcpyHostToDevice));

    int done = 0;
    auto step = [&]() {
        Scheme scheme = {2 + done % 3, 3 + done % 5, 5 + done % 4, 1 + done % 2};
        align<<<(JOBS + 127) / 128, 128>>>(d_bases, d_genome, d_works, scheme, scores);
        pick<<<(READS + 255) / 256, 256>>>(scores, d_jobs, scheme, best, quality);
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
