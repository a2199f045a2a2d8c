/*+++
title = "mma.sync with ldmatrix and cp.async"
idea = "The same tensor cores without the WMMA interface: tiles fly to shared memory asynchronously several stages ahead, are swizzled instead of padded, and reach registers by ldmatrix one step before their mma. Warps then never wait for memory; mma.sync itself, which reaches about 65% of Hopper's tensor peak, is the limit."
kind = "step"
compared_with = "wmma_warp_tiled"
removes = "memory-latency"
minimum_cc = "8.0"

[source]
document = "GEMM notes, mma chapter"

[parameters]
BM = 128
BN = 256
BK = 32
WM = 64
WN = 64
STAGES = 4
BAND = 8

[search]
BM = [64, 128, 256]
BN = [64, 128, 256]
BK = [32, 64]
WM = [32, 64]
WN = [32, 64]
STAGES = [3, 4, 5]
BAND = [4, 8, 16]

[[constraint]]
check = "BM % WM == 0 and BN % WN == 0 and WM % 16 == 0 and WN % 16 == 0 and BK % 32 == 0 and BN >= 64"
says = "a warp tile is made of 16 x 16 steps, and a tile of B is at least eight chunks wide"

[[constraint]]
check = "(BM / WM) * (BN / WN) <= 16 and BM * BK % ((BM / WM) * (BN / WN) * 256) == 0 and BN * BK % ((BM / WM) * (BN / WN) * 256) == 0"
says = "every thread copies the same number of 16-byte chunks"

[[constraint]]
check = "STAGES >= 2 and STAGES * (BM + BN) * BK * 2 <= 232448"
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

// Copies a ROWS x ROW_CHUNKS * CHUNK tile into its swizzled place. What lies outside of the matrix arrives as zeros.
template <int ROWS, int ROW_CHUNKS>
__device__ __forceinline__ void copy_swizzled(uint4* tile, const elem16* matrix, int row0, int col0, int rows, int cols, bool vector) {
    static_assert(ROWS * ROW_CHUNKS % THREADS == 0, "every thread copies the same number of chunks");
    const auto copy = [&](int index, bool async) {
        const int r = index / ROW_CHUNKS, c = index % ROW_CHUNKS, row = row0 + r, col = col0 + c * CHUNK;
        const bool inside = row < rows && col < cols;
        const elem16* source = inside ? matrix + (size_t)row * cols + col : matrix;
        uint4* target = tile + swizzled<ROW_CHUNKS>(r, c);
        if (async) cp_async_16_zfill(shared_address(target), source, inside ? 16 : 0);
        else *target = load_chunk_guarded(source, inside ? cols - col : 0, false);
    };
    if (vector) {
#pragma unroll
        for (int i = 0; i < ROWS * ROW_CHUNKS / THREADS; ++i) copy(threadIdx.x + i * THREADS, true);
    } else {  // rows off the 16-byte grid: slow, but right
#pragma unroll 1
        for (int i = 0; i < ROWS * ROW_CHUNKS / THREADS; ++i) copy(threadIdx.x + i * THREADS, false);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
mma_ldmatrix(const elem16* __restrict__ A, const elem16* __restrict__ B, elem16* __restrict__ C, int M, int N, int K) {
    extern __shared__ __align__(128) uint4 stages[];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const TileIndex tile = banded_tile(blockIdx.x, ceil_div(M, BM), ceil_div(N, BN), BAND);
    const int row0 = tile.row * BM, col0 = tile.col * BN;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;
    const bool vector_a = K % CHUNK == 0, vector_b = N % CHUNK == 0;
    const int tiles = ceil_div(K, BK);

    const auto load_stage = [&](int stage, int k0) {
        uint4* a = stages + stage * STAGE_CHUNKS;
        copy_swizzled<BM, A_CHUNKS>(a, A, row0, k0, M, K, vector_a);
        copy_swizzled<BK, B_CHUNKS>(a + BM * A_CHUNKS, B, k0, col0, K, N, vector_b);
    };

    // Fragments of two steps: one is multiplied while the next is on its way from shared memory.
    unsigned a[2][WM / 16][4], b[2][WN / 16][4];
    const auto load_fragments = [&](int buffer, int stage, int step) {
        const uint4* stage_a = stages + stage * STAGE_CHUNKS;
        const uint4* stage_b = stage_a + BM * A_CHUNKS;
        // Lane l addresses row l % 16 of chunk l / 16: the four 8 x 8 quarters of a 16 x 16 block, in mma's order for both operands.
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
            ldmatrix_x4(a[buffer][i], shared_address(stage_a + swizzled<A_CHUNKS>(warp_row + i * 16 + lane % 16, step * 2 + lane / 16)));
#pragma unroll
        for (int j = 0; j < WN / 16; ++j)
            ldmatrix_x4_trans(b[buffer][j],
                              shared_address(stage_b + swizzled<B_CHUNKS>(step * 16 + lane % 16, warp_col / CHUNK + j * 2 + lane / 16)));
    };

    float sum[WM / 16][WN / 8][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < tiles) load_stage(s, s * BK);
        cp_async_commit();
    }
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    load_fragments(0, 0, 0);

    int stage = 0;
    for (int t = 0; t < tiles; ++t) {
        const int next = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                // The next tile has landed, for all threads; and all have read this stage's last fragments, so that it may be refilled.
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                load_fragments((step + 1) % 2, next, 0);  // after the last tile: read, but never multiplied
            } else {
                load_fragments((step + 1) % 2, stage, step + 1);
            }
            if (step == 0) {
                const int ahead = t + STAGES - 1;
                if (ahead < tiles) load_stage(stage == 0 ? STAGES - 1 : stage - 1, ahead * BK);
                cp_async_commit();
            }
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
#pragma unroll
                for (int j = 0; j < WN / 8; ++j)
                    mma_m16n8k16(sum[i][j], a[step % 2][i], b[step % 2][j / 2][j % 2 * 2], b[step % 2][j / 2][j % 2 * 2 + 1]);
        }
        stage = next;
    }

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
