/*+++
title = "Skewed rows: no bank conflicts"
idea = """\
Lanes that transpose A store four rows of the tile apart, where all rows start in bank 0. Four \
unused floats after every fourth row shift each lane's quartet by four banks, so that eight lanes \
cover all 32 banks and each store takes its minimum of wavefronts."""
kind = "step"
compared_with = "rectangular_tile"
removes = "shared-bank-conflict"
+++*/

#include "gemm_fp32/vector_copy.cuh"

static_assert(SKEW % 4 == 0, "every row must start on a quartet");

// Where A's transposed tile keeps row k of BM floats: SKEW unused floats follow every fourth row.
// A thread stores a 4 x 4 block as four quartets, so lanes that are neighbours along k write four
// rows apart: without a skew these all start in the same bank, with a skew of four floats they
// start four banks apart, and eight lanes cover the 32 banks.
__device__ __forceinline__ int row_of_a(int k) { return k / 4 * (4 * BM + SKEW) + k % 4 * BM; }

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
conflict_free(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
              int M, int N, int K) {
    __shared__ __align__(16) float As[BK / 4 * (4 * BM + SKEW)];  // transposed
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

[parameters]
BM = 64
BN = 64
BK = 32
TM = 8
TN = 4
SKEW = 4
LANES_K = 8

[search]
BM = [64, 128]
BN = [64, 128]
BK = [32]
TM = [4, 8]

[[constraint]]
check = "BM % TM == 0 and BN % TN == 0 and TM % 4 == 0 and TN % 4 == 0 and BK % 4 == 0 and SKEW % 4 == 0"
says = "the tile must split evenly among threads, in quartets of floats"

[[constraint]]
check = "BM * BK % (16 * (BM / TM) * (BN / TN)) == 0 and BK * BN % (4 * (BM / TM) * (BN / TN)) == 0 and (BM / TM) * (BN / TN) <= 1024"
says = "every thread must copy the same number of 4 x 4 blocks of A and quartets of B"

[[constraint]]
check = "BK % (4 * LANES_K) == 0"
says = "the lanes must cover the depth of A's tile evenly"

[[constraint]]
check = "(BK * BM + BK // 4 * SKEW + BK * BN) * 4 <= 49152"
says = "both tiles must fit in 48 KB of shared memory"

[[launch]]
kernel = "conflict_free"
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
says = "no wavefront of shared memory is a repeat"
check = "metric('shared_conflict_excess') < 0.01"

[[expect.profile]]
says = "the same instructions as before"
check = "executed('STS') == prev_executed('STS') and executed('LDS') == prev_executed('LDS')"
sizes = ["4096"]

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
