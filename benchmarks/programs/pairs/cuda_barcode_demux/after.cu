// Demultiplexing of sequencing reads: each read is assigned to the sample barcode that fits it best.
// Reads arrive from the sequencer in page-locked host memory, two bits a base, and are handled in chunks.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t status_ = (call);                                            \
        if (status_ != cudaSuccess) {                                            \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,               \
                         cudaGetErrorString(status_));                           \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

constexpr int BARCODES = 288;
constexpr int OFFSETS = 12;
constexpr int CHUNK = 1 << 20;
constexpr int CHUNKS = 12;
constexpr int THREADS = 256;
constexpr int LANES = 3;
constexpr unsigned MAX_MISMATCH = 3;

struct Read {
    unsigned long long low, high;
};

__constant__ unsigned barcodes[BARCODES];

// Best match of a read: mismatches in the upper half, then offset and barcode.
__global__ void match_reads(const ulonglong2* __restrict__ reads, unsigned* __restrict__ match)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    ulonglong2 read = reads[index];
    unsigned window[OFFSETS];
    unsigned best[OFFSETS];
#pragma unroll
    for (int o = 0; o < OFFSETS; ++o) {
        window[o] = unsigned(read.x >> (2 * o));
        best[o] = 0xffffffffu;
    }
#pragma unroll 2
    for (int b = 0; b < BARCODES; ++b) {
        unsigned code = barcodes[b];
#pragma unroll
        for (int o = 0; o < OFFSETS; ++o) {
            unsigned differ = window[o] ^ code;
            unsigned count = __popc((differ | (differ >> 1)) & 0x55555555u);
            best[o] = min(best[o], (count << 16) + b);
        }
    }
    unsigned chosen = 0xffffffffu;
#pragma unroll
    for (int o = 0; o < OFFSETS; ++o) chosen = min(chosen, best[o] + (unsigned(o) << 10));
    unsigned quality = __popcll(read.y & 0x5555555555555555ull) & 63u;
    match[index] = chosen | (quality << 24);
}

__global__ void tally_matches(const unsigned* __restrict__ match, unsigned long long* __restrict__ counts)
{
    __shared__ unsigned local[BARCODES];
    for (int b = threadIdx.x; b < BARCODES; b += blockDim.x) local[b] = 0;
    __syncthreads();
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < CHUNK; index += gridDim.x * blockDim.x) {
        unsigned found = match[index];
        if (((found >> 16) & 0xffu) <= MAX_MISMATCH) atomicAdd(&local[found & 0x3ffu], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < BARCODES; b += blockDim.x)
        if (local[b]) atomicAdd(&counts[b], (unsigned long long)local[b]);
}

static uint64_t next_random(uint64_t& state)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static void make_run(Read* reads, size_t count, std::vector<unsigned>& codes)
{
    uint64_t state = 2718;
    for (unsigned& code : codes) code = unsigned(next_random(state));
    for (size_t r = 0; r < count; ++r) {
        uint64_t low = next_random(state);
        uint64_t choice = next_random(state);
        int offset = int(choice % OFFSETS);
        unsigned code = codes[(choice >> 8) % BARCODES] ^ (3u << (2 * ((choice >> 24) % 16)));
        low &= ~(0xffffffffull << (2 * offset));
        low |= uint64_t(code) << (2 * offset);
        reads[r].low = low;
        reads[r].high = choice * 0x2545f4914f6cdd1dull;
    }
}

struct Lane {
    cudaStream_t stream;
    ulonglong2* reads;
    unsigned* match;
};

struct Demultiplexer {
    Lane lanes[LANES];
    unsigned long long* counts;

    Demultiplexer()
    {
        for (Lane& lane : lanes) {
            CHECK(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
            CHECK(cudaMalloc(&lane.reads, size_t(CHUNK) * sizeof(ulonglong2)));
            CHECK(cudaMalloc(&lane.match, size_t(CHUNK) * sizeof(unsigned)));
        }
        CHECK(cudaMalloc(&counts, BARCODES * sizeof(unsigned long long)));
        CHECK(cudaMemset(counts, 0, BARCODES * sizeof(unsigned long long)));
        CHECK(cudaDeviceSynchronize());
    }

    void run(const Read* input, unsigned* output)
    {
        for (int c = 0; c < CHUNKS; ++c) {
            const size_t first = size_t(c) * CHUNK;
            Lane& lane = lanes[c % LANES];
            CHECK(cudaMemcpyAsync(lane.reads, input + first, CHUNK * sizeof(Read), cudaMemcpyHostToDevice, lane.stream));
            match_reads<<<CHUNK / THREADS, THREADS, 0, lane.stream>>>(lane.reads, lane.match);
            tally_matches<<<264, THREADS, 0, lane.stream>>>(lane.match, counts);
            CHECK(cudaMemcpyAsync(output + first, lane.match, CHUNK * sizeof(unsigned), cudaMemcpyDeviceToHost, lane.stream));
        }
    }
};

int main()
{
    const int warmup = 6, blocks = 8, per_block = 5;
    const size_t total = size_t(CHUNK) * CHUNKS;
    Read* input;
    unsigned* output;
    CHECK(cudaHostAlloc(&input, total * sizeof(Read), cudaHostAllocDefault));
    CHECK(cudaHostAlloc(&output, total * sizeof(unsigned), cudaHostAllocDefault));
    std::vector<unsigned> codes(BARCODES);
    make_run(input, total, codes);
    CHECK(cudaMemcpyToSymbol(barcodes, codes.data(), BARCODES * sizeof(unsigned)));
    Demultiplexer demux;

    int steps = 0;
    for (; steps < warmup; ++steps) demux.run(input, output);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int block = 0; block < blocks; ++block) {
        auto begin = std::chrono::steady_clock::now();
        for (int k = 0; k < per_block; ++k, ++steps) demux.run(input, output);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
        times.push_back(spent.count() / per_block);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    std::vector<unsigned long long> counts(BARCODES);
    CHECK(cudaMemcpy(counts.data(), demux.counts, BARCODES * sizeof(unsigned long long), cudaMemcpyDeviceToHost));
    double assigned = 0.0, weighted = 0.0, mismatches = 0.0;
    for (int b = 0; b < BARCODES; ++b) {
        assigned += double(counts[b]);
        weighted += double(counts[b]) * (b + 1);
    }
    for (size_t r = 0; r < total; ++r) mismatches += (output[r] >> 16) & 0xffu;
    std::printf("{\"program\": \"cuda_barcode_demux\", \"steps\": %d, \"us\": %.3f, \"result\": [%.10g, %.10g, %.10g]}\n",
                steps, median, assigned, weighted, mismatches);
    return 0;
}
