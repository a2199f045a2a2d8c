/*+++
title = "Register blocking, a k-step unrolled"
idea = """\
Every thread owns 8x16 results, so that a k-step costs 6 LDS.128 for 128 FFMA instead of 4 for 64, \
and fetches the next operands from shared memory while it multiplies the present ones. Shared \
tiles arrive through a multi-stage cp.async pipeline whose addresses only ever advance, so the \
loop is almost nothing but FFMA; few warps an SM are enough."""
kind = "step"
compared_with = "triple_buffered"
removes = "fp32-pipe"
+++*/

#include "common/gemm_async.cuh"

// A warp is 8x4 threads. Thread (i, j) of it owns rows i, i + 8, ... and quartets of columns j, j + 4, ...: its reads of A touch eight rows
// and its reads of B four quartets, which the other lanes share, so that no LDS.128 needs more than 128 distinct bytes.
constexpr int WM = 8 * TM, WN = 4 * TN;
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int A_TILE = BM * BK, STAGE = A_TILE + BK * BN;  // floats
constexpr int GROUPS = BK / 4;                             // quartets along k: what one read of A brings
constexpr int A_COPIES = BM * BK / (4 * THREADS), A_STEP = THREADS / (BK / 4);  // pieces a thread copies, and rows between them
constexpr int B_COPIES = BK * BN / (4 * THREADS), B_STEP = THREADS / (BN / 4);
constexpr int COPIES = A_COPIES + B_COPIES;
static_assert(A_STEP % 8 == 0 && GROUPS % 2 == 0 && STAGES >= 3, "see the constraints");

// Where this thread's pieces of the tiles come from and go to; all of it only ever moves on along k and round the stages.
struct Source {
    const float* a[A_COPIES];
    const float* b;
    int a_k, b_k, b_n;  // the thread's first k in a tile of A and of B, and its column of B
    unsigned a_dst, b_dst;
};

// Piece `c` of the tile that `from` points at. FIRST: the tile holds only `depth` values of k, and the rest has to be zero.
template <bool ALIGNED, bool FIRST>
__device__ __forceinline__ void copy_piece(const Source& from, int c, int depth, int N) {
    if (c < A_COPIES) {
        const unsigned dst = from.a_dst + c * A_STEP * BK * 4;
        if (FIRST) copy_quartet<ALIGNED>(dst, from.a[c], depth - from.a_k);
        else if (ALIGNED) cp_async_16(dst, from.a[c]);
        else for (int e = 0; e < 4; ++e) cp_async_4(dst + 4 * e, from.a[c] + e);
    } else {
        const int k = (c - A_COPIES) * B_STEP;
        const unsigned dst = from.b_dst + k * BN * 4;
        const float* quartet = from.b + row_offset(k, N);
        if (ALIGNED && !FIRST) cp_async_16(dst, quartet);
        else copy_quartet<ALIGNED>(dst, quartet, FIRST && from.b_k + k >= depth ? 0 : N - from.b_n);
    }
}

template <bool ALIGNED>
__device__ __forceinline__ void multiply(const float* A, const float* B, float* C, int M, int N, int K, int m0, int n0, float* tiles) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const int row0 = warp / (BN / WN) * WM + lane / 4, column0 = warp % (BN / WN) * WN + lane % 4 * 4;

    Source from;
    const int a_row = threadIdx.x / (BK / 4), b_column = threadIdx.x % (BN / 4) * 4;
    from.a_k = threadIdx.x % (BK / 4) * 4;
    from.b_k = threadIdx.x / (BN / 4);
    // Rows beyond M repeat the last one and quartets of columns beyond N the last quartet: they only reach results that nobody stores.
    from.b_n = ALIGNED ? min(n0 + b_column, N - 4) : n0 + b_column;
#pragma unroll
    for (int c = 0; c < A_COPIES; ++c) from.a[c] = A + row_offset(min(m0 + a_row + c * A_STEP, M - 1), K) + from.a_k;
    from.b = B + row_offset(from.b_k, N) + from.b_n;
    from.a_dst = shared_address(tiles) + 4 * swizzled<BK>(a_row, from.a_k / 4);
    from.b_dst = shared_address(tiles) + 4 * (A_TILE + from.b_k * BN + b_column);
    auto advance = [&](int depth, int floats) {
#pragma unroll
        for (int c = 0; c < A_COPIES; ++c) from.a[c] += depth;
        from.b += row_offset(depth, N);
        from.a_dst += 4 * floats;
        from.b_dst += 4 * floats;
    };

    // The tile that is not full comes first, so that the loop below never looks at K's remainder.
    const int steps = (K - 1) / BK + 1, first_depth = K - (steps - 1) * BK;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < steps) {
#pragma unroll
            for (int c = 0; c < COPIES; ++c) {
                if (stage == 0) copy_piece<ALIGNED, true>(from, c, first_depth, N);
                else copy_piece<ALIGNED, false>(from, c, BK, N);
            }
            advance(stage == 0 ? first_depth : BK, STAGE);
        }
        cp_async_commit();
    }

    float sum[TM][TN] = {};
    float4 a[2][TM];      // four values of k for each row: this group's and the next one's
    float4 b[2][TN / 4];  // this k's and the next one's
    const float* a_read[GROUPS];
    const float* b_read = tiles + A_TILE + column0;
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) a_read[g] = tiles + swizzled<BK>(row0, g);
    auto load_a = [&](int group, int i) { a[group % 2][i] = load_float4(a_read[group] + i * 8 * BK); };
    auto load_b = [&](int k) {
#pragma unroll
        for (int j = 0; j < TN / 4; ++j) b[k % 2][j] = load_float4(b_read + k * BN + j * 16);
    };

    cp_async_wait<STAGES - 2>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TM; ++i) load_a(0, i);
    load_b(0);

    // `to_next` leads from this step's stage to the next one's, and the step after from the stage then refilled to the one after that.
    int stage = 0, to_next = STAGE;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const bool more = step + STAGES - 1 < steps;
        const int fill_to_next = step == 0 ? (1 - STAGES) * STAGE : to_next;
        to_next = stage == STAGES - 1 ? (1 - STAGES) * STAGE : STAGE;
        stage = stage == STAGES - 1 ? 0 : stage + 1;
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            const int group = k / 4, part = k % 4;
            if (k == BK - 4) {
                // From here on the operands of the next tile are read: it has to have landed, for everybody. Everybody has also left
                // the stage before this one, so that is where new copies may go.
                cp_async_wait<STAGES - 3>();
                __syncthreads();
                a_read[0] += to_next;
            }
            if (group == GROUPS - 1 && part % 2 == 0 && more) {
#pragma unroll
                for (int c = part * COPIES / 4; c < (part + 2) * COPIES / 4; ++c) copy_piece<ALIGNED, false>(from, c, BK, N);
            }
#pragma unroll
            for (int i = part * TM / 4; i < (part + 1) * TM / 4; ++i) load_a((group + 1) % GROUPS, i);
            if (k == BK - 1) b_read += to_next;
            load_b((k + 1) % BK);
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                const float4 row = a[group % 2][i];
                const float left = part == 0 ? row.x : part == 1 ? row.y : part == 2 ? row.z : row.w;
#pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    const float4 right = b[k % 2][j];
                    sum[i][4 * j + 0] += left * right.x;
                    sum[i][4 * j + 1] += left * right.y;
                    sum[i][4 * j + 2] += left * right.z;
                    sum[i][4 * j + 3] += left * right.w;
                }
            }
        }
        cp_async_commit();
        advance(BK, fill_to_next);
#pragma unroll
        for (int g = 1; g < GROUPS; ++g) a_read[g] += to_next;
    }

#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = m0 + row0 + 8 * i;
        if (row < M) store_row<ALIGNED, 16>(C, N, row, n0 + column0, sum[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
register_blocked_unrolled(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    extern __shared__ __align__(128) float tiles[];
    // Blocks run down GROUP tiles of a column before they move right: those that run at the same time then cover a patch of C about as high
    // as wide, and share the most rows of A and columns of B in the L2.
    const int tiles_m = (M - 1) / BM + 1, tiles_n = (N - 1) / BN + 1;
    const int band = blockIdx.x / (GROUP * tiles_n), within = blockIdx.x % (GROUP * tiles_n);
    const int height = min(tiles_m - band * GROUP, GROUP);
    const int m0 = (band * GROUP + within % height) * BM, n0 = within / height * BN;

    if (rows_are_aligned(A, B, C, N, K)) multiply<true>(A, B, C, M, N, K, m0, n0, tiles);
    else multiply<false>(A, B, C, M, N, K, m0, n0, tiles);
}

/*+++
minimum_cc = "8.0"

[parameters]
BM = 128
BN = 128
BK = 16
TM = 8
TN = 16
STAGES = 3
GROUP = 16
BLOCKS_PER_SM = 2

[search]
BM = [64, 128, 256]
BN = [64, 128, 256]
BK = [8, 16, 32]
TM = [4, 8]
TN = [8, 16]
STAGES = [3, 4, 5]
GROUP = [4, 8, 16, 32]
BLOCKS_PER_SM = [1, 2, 3, 4]
[[constraint]]
check = "BM % (8 * TM) == 0 and BN % (4 * TN) == 0"
says = "a warp is 8x4 threads, and warps must tile the block evenly"
[[constraint]]
check = "BM * BK % (4 * (BM // TM) * (BN // TN)) == 0 and BK * BN % (4 * (BM // TM) * (BN // TN)) == 0"
says = "every thread must copy the same number of 16-byte pieces"
[[constraint]]
check = "(BM // TM) * (BN // TN) % (BK // 4) == 0 and ((BM // TM) * (BN // TN) // (BK // 4)) % 8 == 0"
says = "a thread's rows of A must lie a multiple of 8 apart, or the swizzle would differ among them"
[[constraint]]
check = "(BM // TM) * (BN // TN) % (BN // 4) == 0"
says = "a thread's rows of B must lie a whole pass of the block apart"
[[constraint]]
check = "(BM // TM) * (BN // TN) >= 64 and (BM // TM) * (BN // TN) <= 512"
says = "64 to 512 threads per block"
[[constraint]]
check = "(BM // TM) * (BN // TN) * BLOCKS_PER_SM * min(255, TM * TN + 2 * (4 * TM + TN) + 24) <= 65536"
says = """\
accumulators, two sets of operands and addresses of all resident threads must fit in the registers \
of an SM"""
[[constraint]]
check = "4 * STAGES * (BM + BN) * BK <= 232448 // BLOCKS_PER_SM - 1024"
says = "the stages of all resident blocks must fit in the shared memory of an SM"

[[launch]]
kernel = "register_blocked_unrolled"
grid = ["ceil_div(M, BM) * ceil_div(N, BN)", "1", "1"]
block = ["(BM // TM) * (BN // TN)", "1", "1"]
shared = "4 * STAGES * (BM + BN) * BK"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDGSTS.E.BYPASS", "LDS.128", "FFMA", "STG.E.128"]
absent = ["LDL", "STL", "STS"]
max_registers = 255

[[expect.profile]]
says = "one FFMA for each lane and product"
check = "executed('FFMA') == M * N * K / 32"
[[expect.profile]]
says = "fewer shared loads for a product than with 8x8 results per thread"
check = "executed('LDS.128') < 0.85 * prev_executed('LDS.128')"
[[expect.profile]]
says = "the permuted rows leave no bank conflicts"
check = "metric('shared_conflict_excess') < 0.05"
[[measured]]
gpu = "NVIDIA H200"
says = """\
45.6 TFLOP/s at 4096, 0.89 of cuBLAS, and 14.4 at 1024, 0.39 of it. Shared loads were not the \
limit: dispatch stalls were, because a quarter of the FFMA find no operand in the reuse cache and \
read three registers. The unrolled k-step is 2200 instructions, 35 KB; at 1024, with one warp a \
scheduler, warps wait 30 % of the time for instructions."""

[[measured]]
gpu = "NVIDIA H200"
says = """\
1.11, 1.18 and 1.03 times the time of triple_buffered at 512, 1024 and 3072: as many tiles, but \
blocks of four warps instead of eight, and one block an SM at 512 and 1024."""
+++*/
