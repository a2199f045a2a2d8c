/*+++
title = "mma.sync with ldmatrix and cp.async"
idea = """\
The same tensor cores without the WMMA interface: tiles fly to shared memory asynchronously \
several stages ahead, are swizzled instead of padded, and reach registers by ldmatrix one step \
before their mma. Warps then never wait for memory; mma.sync itself, which reaches about 65% of \
Hopper's tensor peak, is the limit."""
kind = "step"
compared_with = "wmma_warp_tiled"
removes = "memory-latency"
+++*/

#include "common/common.cuh"
#include "common/cp_async.cuh"
#include "common/elem16.cuh"
#include "common/mma.cuh"
#include "common/tile_order.cuh"

#define WARPS_N (BN / WN)
#define THREADS ((BM / WM) * WARPS_N * WARP_SIZE)
#define STEPS (BK / 16)           // mma steps in a stage
#define A_CHUNKS (BK / CHUNK)     // 16-byte chunks in a row of a stage's A
#define B_CHUNKS (BN / CHUNK)
#define STAGE_CHUNKS (BM * A_CHUNKS + BK * B_CHUNKS)

// Where chunk `chunk` of row `row` lies. ldmatrix reads the same chunk of eight rows at once, and eight chunks fill all 32 banks: XOR with
// the row spreads the eight over the banks, as padding would, without its memory. A row of four chunks fills half of the banks, so two
// rows share a pattern.
template <int ROW_CHUNKS>
__device__ __forceinline__ int swizzled(int row, int chunk) {
    constexpr int PATTERNS = ROW_CHUNKS < 8 ? ROW_CHUNKS : 8;
    return row * ROW_CHUNKS + (chunk ^ (row / (8 / PATTERNS) % PATTERNS));
}

// A thread's part in the copies of a tile of ROWS rows: one column of chunks and every ROW_STEP-th row. The pattern of the swizzle repeats
// after eight rows, so that one address serves for all of them, and the loop over k only has to add constants.
template <int ROWS, int ROW_CHUNKS>
struct Copier {
    static constexpr int ROW_STEP = THREADS / ROW_CHUNKS, COUNT = ROWS / ROW_STEP;
    static_assert(ROW_STEP % 8 == 0 && ROWS % ROW_STEP == 0, "whole patterns, and as many chunks for each thread");
    const elem16* source;  // of the first row, in the tile that is copied next
    size_t row_step;       // elements
    int target;            // chunks from the start of the tile in shared memory
    int row, col;          // of the matrix

    __device__ __forceinline__ Copier(const elem16* matrix, int row0, int col0, int cols) {
        const int r = threadIdx.x / ROW_CHUNKS, c = threadIdx.x % ROW_CHUNKS;
        row = row0 + r;
        col = col0 + c * CHUNK;
        source = matrix + (size_t)row * cols + col;
        row_step = (size_t)ROW_STEP * cols;
        target = swizzled<ROW_CHUNKS>(r, c);
    }

    // Starts copy i of COUNT. What lies outside of the matrix arrives as zeros and is not read.
    template <bool VECTOR>
    __device__ __forceinline__ void copy(int i, uint4* tile, int rows, int cols) const {
        const bool inside = row + i * ROW_STEP < rows && col < cols;
        uint4* const there = tile + target + i * ROW_STEP * ROW_CHUNKS;
        if (VECTOR) cp_async_16_zfill(shared_address(there), source + i * row_step, inside ? 16 : 0);
        else *there = load_chunk_guarded(source + i * row_step, inside ? cols - col : 0, false);  // rows off the 16-byte grid: slow, but right
    }
};

template <bool VECTOR>
__device__ __forceinline__ void multiply(float (&sum)[WM / 16][WN / 8][4], uint4* stages, const elem16* A, const elem16* B, int row0, int col0,
                                         int warp_row, int warp_col, int M, int N, int K) {
    const int lane = threadIdx.x % WARP_SIZE, tiles = ceil_div(K, BK);
    Copier<BM, A_CHUNKS> copy_a(A, row0, 0, K);
    Copier<BK, B_CHUNKS> copy_b(B, 0, col0, N);
    constexpr int COPIES = copy_a.COUNT + copy_b.COUNT;
    const auto copy = [&](int i, int stage) {
        uint4* const tile = stages + stage * STAGE_CHUNKS;
        if (i < copy_a.COUNT) copy_a.template copy<VECTOR>(i, tile, M, K);
        else copy_b.template copy<VECTOR>(i - copy_a.COUNT, tile + BM * A_CHUNKS, K, N);
    };
    const auto next_tile = [&] {
        cp_async_commit();
        copy_a.source += BK, copy_a.col += BK;
        copy_b.source += (size_t)BK * N, copy_b.row += BK;
    };

    // Lane l addresses row l % 16 of chunk l / 16: the four 8 x 8 quarters of a 16 x 16 block, in mma's order for both operands.
    int a_lane[STEPS], b_lane[WN / 16];
#pragma unroll
    for (int step = 0; step < STEPS; ++step) a_lane[step] = swizzled<A_CHUNKS>(warp_row + lane % 16, step * 2 + lane / 16);
#pragma unroll
    for (int j = 0; j < WN / 16; ++j) b_lane[j] = BM * A_CHUNKS + swizzled<B_CHUNKS>(lane % 16, warp_col / CHUNK + j * 2 + lane / 16);
    // Fragments of two steps: one is multiplied while the next is on its way from shared memory.
    unsigned a[2][WM / 16][4], b[2][WN / 16][4];
    const auto load_fragments = [&](int buffer, int stage, int step) {
        const unsigned tile = shared_address(stages) + stage * (STAGE_CHUNKS * 16);
#pragma unroll
        for (int i = 0; i < WM / 16; ++i) ldmatrix_x4(a[buffer][i], tile + (a_lane[step] + i * 16 * A_CHUNKS) * 16);
#pragma unroll
        for (int j = 0; j < WN / 16; ++j) ldmatrix_x4_trans(b[buffer][j], tile + (b_lane[j] + step * 16 * B_CHUNKS) * 16);
    };

#pragma unroll 1
    for (int s = 0; s < STAGES - 1; ++s) {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) copy(i, s);
        next_tile();
    }
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    load_fragments(0, 0, 0);

    int stage = 0, refill = STAGES - 1;  // refill: read one tile ago
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
        const int next = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                // The next tile has landed, for all threads; and all have read this stage's last fragments, so that it may be refilled.
                cp_async_wait<STAGES - 3>();
                __syncthreads();
                load_fragments((step + 1) % 2, next, 0);  // after the last tile: read, but never multiplied
            } else {
                load_fragments((step + 1) % 2, stage, step + 1);
            }
            // The copies are spread over the steps. Past the end of k they write zeros that nobody reads, which is cheaper than a branch.
#pragma unroll
            for (int i = step * COPIES / STEPS; i < (step + 1) * COPIES / STEPS; ++i) copy(i, refill);
            if (step == STEPS - 1) next_tile();
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
#pragma unroll
                for (int j = 0; j < WN / 8; ++j)
                    mma_m16n8k16(sum[i][j], a[step % 2][i], b[step % 2][j / 2][j % 2 * 2], b[step % 2][j / 2][j % 2 * 2 + 1]);
        }
        refill = stage;
        stage = next;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
mma_ldmatrix(const elem16* __restrict__ A, const elem16* __restrict__ B, elem16* __restrict__ C, int M, int N, int K) {
    extern __shared__ __align__(128) uint4 stages[];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const TileIndex tile = banded_tile(blockIdx.x, ceil_div(M, BM), ceil_div(N, BN), BAND);
    const int row0 = tile.row * BM, col0 = tile.col * BN;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;

    float sum[WM / 16][WN / 8][4] = {};
    if (K % CHUNK == 0 && N % CHUNK == 0) multiply<true>(sum, stages, A, B, row0, col0, warp_row, warp_col, M, N, K);
    else multiply<false>(sum, stages, A, B, row0, col0, warp_row, warp_col, M, N, K);

    const bool aligned = N % 2 == 0;
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row0 + warp_row + i * 16 + half * 8 + lane / 4;
            if (row >= M) continue;
#pragma unroll
            for (int j = 0; j < WN / 8; ++j) {
                const int col = col0 + warp_col + j * 8 + lane % 4 * 2;
                store_pair_guarded(C + (size_t)row * N + col, sum[i][j][half * 2], sum[i][j][half * 2 + 1], N - col, aligned);
            }
        }
}

/*+++
minimum_cc = "8.0"

[source]
document = "GEMM notes, mma chapter"

[parameters]
BM = 256
BN = 128
BK = 32
WM = 64
WN = 64
STAGES = 4
BAND = 8

[search]
BM = [64, 128, 256]
BN = [64, 128, 256]
WM = [32, 64]
WN = [32, 64]
STAGES = [3, 4, 5]
BAND = [4, 8, 16]

[[constraint]]
check = "BM % WM == 0 and BN % WN == 0 and WM % 16 == 0 and WN % 16 == 0 and BK % 32 == 0 and BN >= 64"
says = "a warp tile is made of 16 x 16 steps, and a tile of B is at least eight chunks wide"

[[constraint]]
check = "(BM / WM) * (BN / WN) <= 8"
says = "more than eight warps leave a thread too few registers for two steps' fragments"

[[constraint]]
check = "WM * WN < 4096 or BM * BN >= 16384"
says = "with few warps of large tiles a thread copies more chunks than it has registers to address"

[[constraint]]
check = "BM * BK % ((BM / WM) * (BN / WN) * 256) == 0 and BN * BK % ((BM / WM) * (BN / WN) * 256) == 0"
says = "every thread copies the same number of 16-byte chunks"

[[constraint]]
check = "(BM / WM) * (BN / WN) * 256 % (8 * BK) == 0 and (BM / WM) * (BN / WN) * 256 % (8 * BN) == 0"
says = "a round of copies covers whole swizzle patterns of eight rows"

[[constraint]]
check = "STAGES >= 3 and STAGES * (BM + BN) * BK * 2 <= 232448"
says = "the stages must fit in shared memory"

[[launch]]
kernel = "mma_ldmatrix"
grid = ["ceil_div(M, BM) * ceil_div(N, BN)", "1", "1"]
block = ["(BM / WM) * (BN / WN) * 32", "1", "1"]
shared = "STAGES * (BM + BN) * BK * 2"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["HMMA.16816.F32", "LDSM.16.M88.4", "LDSM.16.MT88.4", "LDGSTS.E.BYPASS"]
absent = ["LDL", "STL", "HGMMA"]
max_registers = 255

[[expect.profile]]
says = "the product runs on the tensor cores: M * N * K / 2048 warp instructions, no more"
check = "executed('HMMA') * 2048 == M * N * K"

[[expect.profile]]
says = "tiles go to shared memory without passing through registers"
check = "executed('LDGSTS') > 0 and executed('STS') == 0"

[[expect.profile]]
says = "the tensor cores work more of the time"
check = "metric('tensor_pipe_active') > prev_metric('tensor_pipe_active')"

[[expect.profile]]
says = "warps hardly wait for global memory any more"
check = "stall_share('long_scoreboard') < 0.15"
+++*/
