/*+++
title = "Vector loads and stores"
idea = """\
Everything moves 16 bytes at a time: a thread loads a 4 x 4 block of A as four quartets, \
transposes it in registers and stores it as four quartets, so that one shared store or load does \
the work of four. The transposed quartets still land in too few banks."""
kind = "step"
compared_with = "mini_tile"
removes = "shared-instruction-pressure"
+++*/

#include "gemm_fp32/vector_tile.cuh"

// Where A's transposed tile keeps row k: at k * BM, in fours so that the addresses of a block's
// rows differ by constants. All rows start in bank 0, so lanes that are neighbours along k conflict.
__device__ __forceinline__ int row_of_a(int k) { return k / 4 * (4 * BM) + k % 4 * BM; }

// Copies two tiles that lie wholly inside their matrices. All loads come before the first store, so
// that they are in flight together. LANES_K: how many 4 x 4 blocks of A neighbouring lanes take
// along k before they move on to the next four rows.
__device__ __forceinline__ void copy_full(float* As, float* Bs, const float* __restrict__ A,
                                          const float* __restrict__ B, int N, int K) {
    constexpr int A_BLOCKS = BM * BK / 16 / THREADS, B_QUARTETS = BK * BN / 4 / THREADS;
    float4 a[A_BLOCKS][4], b[B_QUARTETS];
#pragma unroll
    for (int n = 0; n < A_BLOCKS; ++n) {
        const int block = threadIdx.x + n * THREADS;
        const int k = 4 * (block % LANES_K + LANES_K * (block / (LANES_K * (BM / 4))));
        const int m = 4 * (block / LANES_K % (BM / 4));
#pragma unroll
        for (int i = 0; i < 4; ++i) a[n][i] = load_float4(A + (size_t)(m + i) * K + k);
    }
#pragma unroll
    for (int n = 0; n < B_QUARTETS; ++n) {
        const int at = 4 * (threadIdx.x + n * THREADS);
        b[n] = load_float4(B + (size_t)(at / BN) * N + at % BN);
    }
#pragma unroll
    for (int n = 0; n < A_BLOCKS; ++n) {
        const int block = threadIdx.x + n * THREADS;
        const int k = 4 * (block % LANES_K + LANES_K * (block / (LANES_K * (BM / 4))));
        const int m = 4 * (block / LANES_K % (BM / 4));
#pragma unroll
        for (int j = 0; j < 4; ++j)  // column j of the block becomes a quartet of row k + j
            store_float4(As + row_of_a(k + j) + m,
                         make_float4(element(a[n][0], j), element(a[n][1], j),
                                     element(a[n][2], j), element(a[n][3], j)));
    }
#pragma unroll
    for (int n = 0; n < B_QUARTETS; ++n) store_float4(Bs + 4 * (threadIdx.x + n * THREADS), b[n]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 768 / THREADS)
vectorized(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
           int M, int N, int K) {
    __shared__ __align__(16) float As[BK * BM];  // transposed
    __shared__ __align__(16) float Bs[BK * BN];
    const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const bool vector = K % 4 == 0 && N % 4 == 0 &&
                        is_aligned_16(A) && is_aligned_16(B) && is_aligned_16(C);
    const int rows = M - row0, cols = N - col0;  // what is left of C from this tile's corner on
    const bool inside = vector && rows >= BM && cols >= BN;
    A += (size_t)row0 * K;
    B += col0;
    C += (size_t)row0 * N + col0;

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (inside && K - k0 >= BK) copy_full(As, Bs, A + k0, B + (size_t)k0 * N, N, K);
        else copy_edge(As, Bs, A + k0, B + (size_t)k0 * N, rows, cols, K - k0, N, K);
        __syncthreads();
#pragma unroll 2
        for (int k = 0; k < BK; k += 4)
#pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                float4 a[TM / 4], b[TN / 4];
#pragma unroll
                for (int i = 0; i < TM / 4; ++i)
                    a[i] = load_float4(As + row_of_a(k + kk) + ty * TM + 4 * i);
#pragma unroll
                for (int j = 0; j < TN / 4; ++j)
                    b[j] = load_float4(Bs + (k + kk) * BN + tx * TN + 4 * j);
#pragma unroll
                for (int i = 0; i < TM; ++i)
#pragma unroll
                    for (int j = 0; j < TN; ++j)
                        sum[i][j] += element(a[i / 4], i % 4) * element(b[j / 4], j % 4);
            }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int row = ty * TM + i, col = tx * TN + j;
            const float4 v = make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            store_float4_guarded(C + (size_t)row * N + col, v, row < rows ? cols - col : 0, vector);
        }
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = """\
GEMM worklog on an RTX 4090; S. Boehm, How to Optimize a CUDA Matmul Kernel for cuBLAS-like \
Performance: a Worklog; SGEMM study on a V100"""
claim = "64.3 us at 1024 (RTX 4090); 19 TFLOP/s (RTX A6000); 11.4 TFLOP/s (Tesla V100)"
device = "RTX 4090, RTX A6000, Tesla V100"

[parameters]
BM = 64
BN = 64
BK = 64
TM = 4
TN = 4
LANES_K = 16

[search]
BK = [32, 64]
TM = [4, 8]
LANES_K = [4, 8, 16]

[[constraint]]
check = "BM % TM == 0 and BN % TN == 0 and TM % 4 == 0 and TN % 4 == 0 and BK % 4 == 0"
says = "the tile must split evenly among threads, in quartets of floats"

[[constraint]]
check = "BM * BK % (16 * (BM / TM) * (BN / TN)) == 0 and BK * BN % (4 * (BM / TM) * (BN / TN)) == 0 and (BM / TM) * (BN / TN) <= 1024"
says = "every thread must copy the same number of 4 x 4 blocks of A and quartets of B"

[[constraint]]
check = "BK % (4 * LANES_K) == 0"
says = "the lanes must cover the depth of A's tile evenly"

[[constraint]]
check = "(BK * BM + BK * BN) * 4 <= 49152"
says = "both tiles must fit in 48 KB of shared memory"

[[launch]]
kernel = "vectorized"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / TM) * (BN / TN)", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E.128", "STS.128", "LDS.128", "STG.E.128", "FFMA", "BAR.SYNC"]
absent = ["LDL", "STL"]
max_registers = 128

[[expect.profile]]
says = "every store to shared memory is 128 bits wide"
check = "executed('STS.128') == executed('STS')"

[[expect.profile]]
says = "every read of shared memory is 128 bits wide"
check = "executed('LDS.128') == executed('LDS')"

[[expect.profile]]
says = "a quarter of the stores to shared memory is left"
check = "executed('STS') * 4 == prev_executed('STS')"

[[expect.profile]]
says = "a quarter of the global loads is left"
check = "executed('LDG') * 4 == prev_executed('LDG')"

[[expect.profile]]
says = "shared stores still conflict"
check = "metric('shared_conflict_excess') > 0.05"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"

[[measured]]
gpu = "disassembly for sm_80 to sm_90"
says = """\
Shared reads do not fall: in mini_tile nvcc 13 already merges four neighbouring scalar reads into \
one LDS.128, along k for A and along the row for B. It cannot do so for the stores, whose values \
come from predicated scalar loads, and those are what this rung divides by four."""
+++*/
