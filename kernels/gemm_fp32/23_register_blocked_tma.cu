/*+++
title = "Tiles loaded by TMA; four values of k per read of A"
idea = """\
Register blocking as before, but tiles come by TMA and not through registers, in steps of 32 k: \
no stores to shared memory, hardly an address, one barrier a step. A is not transposed: a \
quartet of A is four k of a row, in rows that TMA has swizzled. Lanes are assigned to rows and \
columns so that each LDS.128 takes four wavefronts: faster loads would keep FFMA from the \
register file."""
kind = "step"
compared_with = "register_blocked"
+++*/

#include "common/tma.cuh"
#include "gemm_fp32/register_blocked.cuh"

// A stage holds the tile of A, BM rows of BK floats, swizzled, then that of B, BK rows of BN floats, then barriers that count the bytes: one for
// each of the two tiles that a block may have to do with, so that each begins with a fresh one.
constexpr int A_BYTES = 4 * BM * BK, TILE_BYTES = A_BYTES + 4 * BK * BN, STAGE = TILE_BYTES + 1024;
static_assert(BK == 32 && TM % 4 == 0 && TN % 4 == 0 && BM % WM == 0 && BN % WN == 0, "see the constraints");

// What lies at an address of shared memory. Addresses are kept as numbers, which loads take as they are.
template <typename T>
__device__ __forceinline__ T* at(unsigned address) {
    return static_cast<T*>(__cvta_shared_to_generic(address));
}

// True in one lane of a warp whose lanes all come here. The compiler knows that it is one, and makes no loop over lanes of what only one may do.
__device__ __forceinline__ bool elect_lane() {
    unsigned chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen;
}

// The compiler schedules what lies between two seams. This is an event that a profiler could count.
__device__ __forceinline__ void seam() {
    asm volatile("pmevent 1;" ::: "memory");
}

// Adds the k-steps `from` .. `to` - 1 of the tile at (m0, n0) to `sum`. What lies beyond an edge of A or B arrives as zeros, also behind the last k.
__device__ __forceinline__ void multiply(float (&sum)[TM][TN], const CUtensorMap& map_a, const CUtensorMap& map_b, int m0, int n0, int row0,
                                         int column0, int from, int to, unsigned stages, int piece) {
    const unsigned barriers = TILE_BYTES + 8 * piece;  // bytes from a stage to its barrier
    const auto copy = [&](int step, unsigned full) {
        mbarrier_arrive_expect(at<mbarrier>(full), TILE_BYTES);
        tma_load(at<float>(full - barriers), &map_a, step * BK, m0, at<mbarrier>(full));
        tma_load(at<float>(full - barriers + A_BYTES), &map_b, n0, step * BK, at<mbarrier>(full));
    };
    const bool first_warp = threadIdx.x < WARP_SIZE;
    unsigned full = stages + barriers;  // the barrier of the present stage
    int other = STAGE;                  // bytes to the other one
    if (first_warp && elect_lane()) {
        copy(from, full);
        if (from + 1 < to) copy(from + 1, full + other);
    }

    // Quartets of four k of a row: two sets for the first half of a thread's rows, one for the second half. The swizzle turns the quartets of a row
    // by the row's number, modulo eight the same for all rows of a thread. Then quartets of four columns, for an even k and for an odd one.
    float4 first[2][TM / 2], second[TM / 2], b[2][TN / 4];
    unsigned a_row = stages + 4 * BK * row0 + row0 % 8 * 16, b_row = stages + A_BYTES + 4 * column0, turn = 0;
    unsigned a_even = a_row, a_odd = a_row ^ 16;  // quartets 0 and 1 of the present eight k
    const auto read_a = [&](int quartet, int i) { return *at<float4>((quartet ? a_odd : a_even) + 4 * BK * 8 * i); };
    const auto read_first = [&](int quartet, int begin, int end) {
#pragma unroll
        for (int i = begin; i < end; ++i) first[quartet][i] = read_a(quartet, i);
    };
    const auto read_second = [&](int quartet) {
#pragma unroll
        for (int i = 0; i < TM / 2; ++i) second[i] = read_a(quartet, TM / 2 + i);
    };
    const auto read_b = [&](int k) {
#pragma unroll
        for (int j = 0; j < TN / 4; ++j) b[k % 2][j] = *at<float4>(b_row + 4 * (BN * k + 16 * j));
    };
    const auto start_product = [&](int k) {
        add_rows<0>(sum, [&](int i) { return reinterpret_cast<const float*>(&first[k / 4 % 2][i])[k % 4]; }, b[k % 2], [](int) {});
    };
    const auto finish_product = [&](int k) {
        add_rows<TM / 2>(sum, [&](int i) { return reinterpret_cast<const float*>(&second[i - TM / 2])[k % 4]; }, b[k % 2], [](int) {});
    };
    // The second half of product k, the loads that replace its fragments, and the first half of the next product, which has its fragments already:
    // see register_blocked.
    const auto stretch = [&](int k) {
        finish_product(k);
        if (k == 0) read_first(1, 0, TM / 4);
        if (k == 1) read_first(1, TM / 4, TM / 2);
        if (k == 3) read_second(1);
        if (k == 6) read_first(0, 0, TM / 2);
        if (k == 7) read_second(0);
        read_b(k + 2);
        start_product((k + 1) % 8);
    };

    mbarrier_wait(at<mbarrier>(full), 0);
    read_first(0, 0, TM / 2);
    read_second(0);
    read_b(0);
    read_b(1);
    start_product(0);
    int step = from + 1;  // the next one
    unsigned parity = 0;
    // Eight k at a time, with a seam behind every other stretch.
#pragma unroll 1
    while (true) {
        stretch(0);
        stretch(1);
        seam();
        stretch(2);
        stretch(3);
        seam();
        stretch(4);
        stretch(5);
        turn += 32;
        if (turn == 4 * BK) {
            // All of the present stage has been read. The next one has arrived or is waited for, and once everybody is here, its successor may
            // overwrite this one: it has a whole step to arrive in.
            if (step == to) break;
            step = opaque(step + 1);
            full = opaque(full + other);
            mbarrier_wait(at<mbarrier>(full), parity);
            __syncthreads();
            if (first_warp && step < to && elect_lane()) copy(step, full - other);
            turn = 0;
            a_row += other;
            b_row += other - 4 * BK * BN;
            parity ^= other > 0;  // the second stage has come: the first follows, a phase later
            other = -other;
        }
        a_even = a_row ^ turn;
        stretch(6);
        stretch(7);
        b_row += 4 * 8 * BN;
        a_odd = a_even ^ 16;
    }
    finish_product(6);
    start_product(7);
    finish_product(7);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
register_blocked_tma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* __restrict__ C, float* partial,
                     int* arrived, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char shared[];  // swizzled tiles start at a multiple of 1024 bytes
    const unsigned stages = shared_address(shared);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < 2; ++stage)
            for (int piece = 0; piece < 2; ++piece) mbarrier_init(at<mbarrier>(stages + stage * STAGE + TILE_BYTES + 8 * piece), 1);
        mbarrier_init_fence();
    }
    __syncthreads();

    // Lanes i and i ^ 1 ask for different quartets, of A and of B, and so do lanes i and i ^ 2: see register_blocked.
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const int row0 = warp / (BN / WN) * WM + (lane / 4 ^ lane % 4), column0 = warp % (BN / WN) * WN + lane % 4 * 4;
    multiply_dealt(
        partial, arrived, M, N, K,
        [&](float (&sum)[TM][TN], int m0, int n0, int from, int to, int piece) {
            multiply(sum, map_a, map_b, m0, n0, row0, column0, from, to, stages, piece);
        },
        [&](float (&sum)[TM][TN], int m0, int n0) {
            const auto row_of = [](int i) { return 8 * i; };
            if (N % 4 == 0 && is_aligned_16(C)) store_tile<true>(sum, C, M, N, m0, n0, row0, column0, row_of);
            else store_tile<false>(sum, C, M, N, m0, n0, row0, column0, row_of);
        });
}

/*+++
minimum_cc = "9.0"

[parameters]
BM = 128
BN = 128
BK = 32
TM = 8
TN = 16
GROUP = 8
BLOCKS_PER_SM = 2
MIN_STEPS = 4
WORTH = 4

[search]
BM = [64, 128]
GROUP = [8, 16]
BLOCKS_PER_SM = [2, 4]
MIN_STEPS = [2, 4, 8]
[[constraint]]
check = "BK == 32 and TM == 8 and TN % 4 == 0"
says = "a row of a tile of A is one 128-byte swizzle span, and halves of a thread's rows are quartets"
[[constraint]]
check = "BM % (8 * TM) == 0 and BN % (4 * TN) == 0 and BM <= 256 and BN <= 256"
says = "a warp is 8x4 threads, warps must tile the block evenly, and TMA takes 256 rows or columns at most"
[[constraint]]
check = "(BM // TM) * (BN // TN) * BLOCKS_PER_SM * min(255, TM * TN + 2 * (TM + TN) + 6 * TM + 30) <= 65536"
says = "accumulators, fragments and addresses of all resident threads must fit in the registers of an SM"
[[constraint]]
check = "2 * (4 * BK * (BM + BN) + 1024) <= 233472 // BLOCKS_PER_SM - 2048"
says = "the two stages of all resident blocks must fit in the shared memory of an SM"

[model]
says = """\
Time follows the products that tiles make, edges included: what is left of a round is dealt out \
evenly. Two blocks of 64 x 128 take no longer than one of 128 x 128, and leave less beyond the \
edges. Small tiles are slower and start sooner, and with them few tiles are cut into fewer parts. \
Constants fitted to an H200 (docs/decisions/36-unseen-sizes.md), in microseconds."""
time_us = "tiles * BM * BN * steps * BK / 29e6 * slower + (17 if BM + BN == 128 else 21 if tiles > 0.2 * sm_count * BLOCKS_PER_SM else 29)"

[model.over]
BM = [64, 128]
BN = [128, 64]

[model.set]
BLOCKS_PER_SM = "2 if BM + BN == 256 else 4"
MIN_STEPS = "2 if BM + BN == 128 else 4"
WORTH = "4 if BM + BN == 256 else 1"

[model.let]
tiles = "ceil_div(M, BM) * ceil_div(N, BN)"
steps = "ceil_div(K, BK)"
slower = "1.12 if BM + BN == 128 else 1.01 if BM + BN == 256 else 1.003 if BN == 64 else 1"

[[launch]]
kernel = "register_blocked_tma"
grid = ["sm_count * BLOCKS_PER_SM", "ceil_div(ceil_div(M, BM) * ceil_div(N, BN), sm_count * BLOCKS_PER_SM)", "1"]
block = ["(BM // TM) * (BN // TN)", "1", "1"]
shared = "2 * (4 * BK * (BM + BN) + 1024)"
args = ["map_a", "map_b", "C", "partial", "arrived", "M", "N", "K"]

[tensor_maps.map_a]
array = "A_pitched"
box = ["BK", "BM"]
swizzle = 128

[tensor_maps.map_b]
array = "B_pitched"
box = ["BN", "BK"]
swizzle = 0

[scratch.partial]
dtype = "float32"
count = "2 * sm_count * BLOCKS_PER_SM * BM * BN"

[scratch.arrived]  # all zero again after every launch
dtype = "int32"
count = "sm_count * BLOCKS_PER_SM"

[expect.sass]
present = ["UTMALDG.2D", "SYNCS", "ELECT", "LDS.128", "FFMA", "STG.E.128"]
absent = ["LDL", "STL", "LDGSTS", "STS.128"]
max_registers = 255

[[expect.profile]]
says = """\
one FFMA for each lane and product, also where tiles are cut along k: parts are added up by FADD"""
check = "executed('FFMA') == M * N * K / 32"
[[expect.profile]]
says = "tiles do not pass through registers on their way to shared memory"
check = "executed('STS') < 0.01 * prev_executed('STS')"
[[expect.profile]]
says = "the FMA pipe is the limit"
check = "metric('fma_pipe_active') > 0.79"
sizes = ["4096"]
+++*/
