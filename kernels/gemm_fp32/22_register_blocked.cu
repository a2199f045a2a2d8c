/*+++
title = "Register blocking until FMA is the limit"
idea = """\
Every thread owns 8x16 results, so that a k costs 6 LDS.128 for 128 FFMA. The FFMA run through the \
accumulators in a snake: each finds an operand of the one before in the reuse cache and reads the \
other two from different register banks. Loads are issued two stretches of the loop ahead of their \
use, and stores to shared memory go out between FFMA. The tiles of the last, partial wave are \
split along k, in equal shares for all SMs."""
kind = "step"
compared_with = "triple_buffered"
removes = "fp32-pipe"
+++*/

#include "gemm_fp32/register_blocked.cuh"

// The loop holds two k, short enough for the instruction cache. It is laid out in stretches that the
// compiler schedules one by one: each has the loads for the stretch after the next, so that they have
// half a product to arrive in. A share of the last round may be the end of one tile and the start of
// the next.

// A row of a shared tile holds one k: a column of A, four floats of nothing, a row of B. The four floats turn the next four rows by 16 banks,
// so that two threads which store neighbouring quartets of a row of A do not meet; with BK = 16 those two quartets apart still do.
constexpr int PITCH = BM + 4 + BN, HALF = BK * PITCH;
constexpr int A_LOADS = BM * BK / (4 * THREADS), A_STEP = THREADS / (BK / 4);  // quartets a thread copies, and rows between them
constexpr int B_LOADS = BK * BN / (4 * THREADS), B_STEP = THREADS / (BN / 4);
static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0, "every thread copies the same number of quartets");
static_assert(THREADS % (BN / 4) == 0 && THREADS % (BK / 4) == 0 && BM % WM == 0 && BN % WN == 0 && BK % 4 == 0, "see the constraints");

// Four neighbours of a row. Without alignment, `at` says where each lies.
template <bool ALIGNED>
__device__ __forceinline__ float4 fetch(const float* row, const int (&at)[4]) {
    if (ALIGNED) return load_float4(row);
    return make_float4(row[at[0]], row[at[1]], row[at[2]], row[at[3]]);
}

// Adds the k-steps `from` .. `to` - 1 of the tile at (m0, n0) to `sum`. The step that is not full is the first of all, so that the loop never
// looks at K's remainder.
template <bool ALIGNED>
__device__ __forceinline__ void multiply(float (&sum)[TM][TN], const float* A, const float* B, int M, int N, int K, int m0, int n0,
                                         int row0, int column0, int from, int to, float* tiles) {
    const int a_row = threadIdx.x / (BK / 4), a_k = threadIdx.x % (BK / 4) * 4;
    const int b_k = threadIdx.x / (BN / 4), b_column = threadIdx.x % (BN / 4) * 4;
    const int remainder = (K - 1) % BK + 1;
    const int depth = from == 0 ? remainder : BK, k0 = from == 0 ? 0 : remainder + (from - 1) * BK;

    // Rows beyond M and columns beyond N repeat the last ones: they only reach results that nobody stores.
    const float *a_from[A_LOADS], *b_from[B_LOADS];
    const int a_at[4] = {0, 1, 2, 3};
    int b_at[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) b_at[e] = min(n0 + b_column + e, N - 1);
#pragma unroll
    for (int l = 0; l < A_LOADS; ++l) a_from[l] = A + row_offset(min(m0 + a_row + l * A_STEP, M - 1), K) + (k0 + a_k);
#pragma unroll
    for (int l = 0; l < B_LOADS; ++l) b_from[l] = B + row_offset(k0 + b_k + l * B_STEP, N) + (ALIGNED ? min(n0 + b_column, N - 4) : 0);

    float4 a_next[A_LOADS], b_next[B_LOADS];  // the step after the present one, on its way from global to shared memory
    float *a_to = tiles + a_k * PITCH + a_row, *b_to = tiles + b_k * PITCH + BM + 4 + b_column;
    const auto load_a = [&](int l) { a_next[l] = fetch<ALIGNED>(a_from[l], a_at); };
    const auto load_b = [&](int l) { b_next[l] = fetch<ALIGNED>(b_from[l], b_at); };
    const auto store_a = [&](int l) {
        a_to[l * A_STEP] = a_next[l].x;
        a_to[l * A_STEP + PITCH] = a_next[l].y;
        a_to[l * A_STEP + 2 * PITCH] = a_next[l].z;
        a_to[l * A_STEP + 3 * PITCH] = a_next[l].w;
    };
    const auto store_b = [&](int l) { store_float4(b_to + l * B_STEP * PITCH, b_next[l]); };
    // `for_a` and `for_b` for each quartet of the next step whose turn it is, when the turns of all are spread over TM rows.
    const auto turn = [&](int row, auto for_a, auto for_b) {
#pragma unroll
        for (int l = 0; l < A_LOADS; ++l)
            if (l * TM / A_LOADS == row) for_a(l);
#pragma unroll
        for (int l = 0; l < B_LOADS; ++l)
            if (l * TM / B_LOADS == row) for_b(l);
    };

#pragma unroll
    for (int l = 0; l < A_LOADS; ++l) {
        const float* quartet = a_from[l];
        a_next[l].x = a_k + 0 < depth ? quartet[0] : 0.f;
        a_next[l].y = a_k + 1 < depth ? quartet[1] : 0.f;
        a_next[l].z = a_k + 2 < depth ? quartet[2] : 0.f;
        a_next[l].w = a_k + 3 < depth ? quartet[3] : 0.f;
        a_from[l] += depth;
        store_a(l);
    }
#pragma unroll
    for (int l = 0; l < B_LOADS; ++l) {
        b_next[l] = make_float4(0.f, 0.f, 0.f, 0.f);
        if (b_k + l * B_STEP < depth) b_next[l] = fetch<ALIGNED>(b_from[l], b_at);
        b_from[l] += row_offset(depth, N);
        store_b(l);
    }
    __syncthreads();
    int step = from + 1;  // the one that is fetched
    if (step < to) {
#pragma unroll
        for (int l = 0; l < A_LOADS; ++l) load_a(l);
#pragma unroll
        for (int l = 0; l < B_LOADS; ++l) load_b(l);
    }

    float4 a[2][TM / 4], b[2][TN / 4];  // fragments for an even k and for an odd one
    const float *a_read = tiles + row0, *b_read = tiles + BM + 4 + column0;
    const auto read_fragments = [&](int odd, int row) {
#pragma unroll
        for (int i = 0; i < TM / 4; ++i) a[odd][i] = load_float4(a_read + row * PITCH + 32 * i);
#pragma unroll
        for (int j = 0; j < TN / 4; ++j) b[odd][j] = load_float4(b_read + row * PITCH + 16 * j);
    };
    const auto left = [&](int odd) { return [&, odd](int i) { return reinterpret_cast<const float*>(a[odd])[i]; }; };
    const auto start_product = [&](int odd, auto after) { add_rows<0>(sum, left(odd), b[odd], after); };
    const auto finish_product = [&](int odd, auto after) { add_rows<TM / 2>(sum, left(odd), b[odd], after); };
    const auto nothing = [](int) {};

    // The compiler schedules whatever lies between two seams: branches, and what is put here for its sake. A stretch is the second half of one
    // product, the loads that replace its fragments, and the first half of the next product, which has its fragments already. Nothing in it waits
    // for those loads, so that the compiler keeps the snake as it is written, and the loads, which it moves to the end, have half a product to
    // arrive in. Without seams it would move whole products past each other, and loads right before their use.
    read_fragments(0, 0);
    read_fragments(1, 1);
    start_product(0, nothing);
    int to_other = HALF;  // floats to the other half
#pragma unroll 1
    while (true) {
        // Two k at a time, no more: the loop fits in the instruction cache.
#pragma unroll 1
        for (int k = 0; k < BK - 2; k += 2) {
            finish_product(0, nothing);
            read_fragments(0, 2);
            start_product(1, nothing);
            __syncwarp();  // a seam
            finish_product(1, nothing);
            read_fragments(1, 3);
            start_product(0, nothing);
            a_read += 2 * PITCH;
            b_read += 2 * PITCH;
        }
        // The last two k of the step, among which the next one is stored: everybody left the other half before the last barrier. After the last
        // step of all nobody reads what is stored here.
        a_to += to_other;
        b_to += to_other;
        finish_product(0, [&](int row) { turn(row, store_a, store_b); });
        start_product(1, [&](int row) { turn(TM / 2 + row, store_a, store_b); });
        if (step == to) break;
        ++step;
        __syncthreads();
        a_read += to_other - (BK - 2) * PITCH;
        b_read += to_other - (BK - 2) * PITCH;
        to_other = -to_other;
        const unsigned more = opaque(step < to), rows = step < to ? N : 0;  // behind the last step it stays where it is
        const auto load_next_a = [&](int l) {
            a_from[l] += static_cast<size_t>(more) * BK;
            load_a(l);
        };
        const auto load_next_b = [&](int l) {
            b_from[l] += static_cast<size_t>(rows) * BK;
            load_b(l);
        };
        read_fragments(0, 0);
        finish_product(1, [&](int row) { turn(row, load_next_a, load_next_b); });
        asm volatile("pmevent 1;" ::: "memory");  // a seam too: an event that a profiler could count. The compiler would move __syncwarp() from here
        read_fragments(1, 1);
        start_product(0, [&](int row) { turn(TM / 2 + row, load_next_a, load_next_b); });
    }
    finish_product(1, nothing);
}

template <bool ALIGNED>
__device__ __forceinline__ void multiply_tiles(const float* A, const float* B, float* C, float* partial, int* arrived, int M, int N, int K,
                                                float* tiles) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    // Lanes i and i ^ 1 ask for different quartets, of A and of B, and so do lanes i and i ^ 2: else a load takes two passes instead of four, and yet
    // FFMA wait longer, probably for the register file.
    const int row0 = warp / (BN / WN) * WM + lane % 8 * 4, column0 = warp % (BN / WN) * WN + (lane / 8 ^ lane % 4) * 4;
    multiply_dealt(
        partial, arrived, M, N, K,
        [&](float (&sum)[TM][TN], int m0, int n0, int from, int to, int) {
            multiply<ALIGNED>(sum, A, B, M, N, K, m0, n0, row0, column0, from, to, tiles);
        },
        [&](float (&sum)[TM][TN], int m0, int n0) {
            store_tile<ALIGNED>(sum, C, M, N, m0, n0, row0, column0, [](int i) { return i / 4 * 32 + i % 4; });
        });
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
register_blocked(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, float* partial, int* arrived,
                 int M, int N, int K) {
    extern __shared__ __align__(128) float tiles[];
    if (rows_are_aligned(A, B, C, N, K)) multiply_tiles<true>(A, B, C, partial, arrived, M, N, K, tiles);
    else multiply_tiles<false>(A, B, C, partial, arrived, M, N, K, tiles);
}

/*+++
minimum_cc = "8.0"

[parameters]
BM = 128
BN = 128
BK = 16
TM = 8
TN = 16
GROUP = 8
BLOCKS_PER_SM = 2
MIN_STEPS = 8
WORTH = 8

[search]
BM = [64, 128]
BK = [8, 16]
GROUP = [8, 16]
BLOCKS_PER_SM = [2, 4]
[[constraint]]
check = "BM % (8 * TM) == 0 and BN % (4 * TN) == 0"
says = "a warp is 8x4 threads, and warps must tile the block evenly"
[[constraint]]
check = "BM * BK % (4 * (BM // TM) * (BN // TN)) == 0 and BK * BN % (4 * (BM // TM) * (BN // TN)) == 0"
says = "every thread must copy the same number of quartets of each tile"
[[constraint]]
check = "(BM // TM) * (BN // TN) % (BN // 4) == 0 and (BM // TM) * (BN // TN) % (BK // 4) == 0"
says = "a thread's quartets of a tile must lie a whole pass of the block apart"
[[constraint]]
check = "TM * TN <= 128"
says = "16x16 accumulators alone would be more than the 255 registers of a thread"
[[constraint]]
check = "(BM // TM) * (BN // TN) * BLOCKS_PER_SM * min(255, TM * TN + 2 * (TM + TN) + 40) <= 65536"
says = """\
accumulators, two sets of fragments and addresses of all resident threads must fit in the \
registers of an SM"""
[[constraint]]
check = "8 * BK * (BM + 4 + BN) <= 101376 // BLOCKS_PER_SM - 1024"
says = """\
the two halves of all resident blocks must fit in the 99 KiB of shared memory that the smallest \
SMs have"""

[[launch]]
kernel = "register_blocked"
grid = ["sm_count * BLOCKS_PER_SM", "ceil_div(ceil_div(M, BM) * ceil_div(N, BN), sm_count * BLOCKS_PER_SM)", "1"]
block = ["(BM // TM) * (BN // TN)", "1", "1"]
shared = "8 * BK * (BM + 4 + BN)"
args = ["A", "B", "C", "partial", "arrived", "M", "N", "K"]

[scratch.partial]
dtype = "float32"
count = "2 * sm_count * BLOCKS_PER_SM * BM * BN"

[scratch.arrived]  # all zero again after every launch
dtype = "int32"
count = "sm_count * BLOCKS_PER_SM"

[expect.sass]
present = ["LDG.E.128", "STS.128", "LDS.128", "FFMA", "STG.E.128"]
absent = ["LDL", "STL", "LDGSTS"]
max_registers = 255

[[expect.profile]]
says = """\
one FFMA for each lane and product, also where tiles are cut along k: parts are added up by FADD"""
check = "executed('FFMA') == M * N * K / 32"
[[expect.profile]]
says = "fewer shared loads for a product than with 8x8 results per thread"
check = "executed('LDS.128') < 0.85 * prev_executed('LDS.128')"
[[expect.profile]]
says = "the FMA pipe is the limit"
check = "metric('fma_pipe_active') > 0.79"
sizes = ["4096"]
[[expect.profile]]
says = "few FFMA wait for their registers to be read"
check = "stall('dispatch_stall') < 0.6 * prev_stall('dispatch_stall')"
[[expect.profile]]
says = "storing A transposed costs few wavefronts beyond the ideal"
check = "metric('shared_conflict_excess') < 0.1"

[[measured]]
gpu = "NVIDIA H200"
says = """\
TFLOP/s at 1024, 2048 .. 8192: 36.5, 51.3, 53.4, 54.4, 54.6, 54.9, 54.9, 54.7; over cuBLAS taken \
in turns: 1.006, 1.029, 1.184, 1.066, 1.164, 1.079, 1.060, 1.076, geometric mean 1.082. The form \
before, with the loads of each product at its end, had 1.026 at 4096 and 1.036 at 8192: \
docs/decisions/fp32-beyond-cublas.md."""
[[measured]]
gpu = "NVIDIA H200"
says = """\
Lanes whose loads of A take four passes instead of two: 0.4 to 1.2 % faster from 1024 on, 1 to 2 % \
slower at 256 and 512."""
[[measured]]
gpu = "NVIDIA H200"
says = """\
BK = 8 is 1 to 3 % slower than 16, BM = 64 as fast at 1024 and 2 to 4 % slower elsewhere, GROUP = \
16 within 0.5 % of 8. Without the even cut it is level at 1024, 2048, 3072 and 5120, and 1.5 to \
3.5 % slower at 4096, 6144, 7168 and 8192."""
+++*/
