/*+++
title = "A thread's elements a block apart"
idea = """\
The thread's 4 x 4 elements no longer touch: they lie 16 rows and 16 columns apart, so that neighbouring lanes always use neighbouring \
floats. Shared reads and writes then hit every bank once, and C is stored in whole sectors."""
kind = "step"
compared_with = "mini_tile"
removes = "shared-bank-conflict"
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = "SGEMM study on a V100"
claim = "6.7 TFLOP/s"
device = "Tesla V100"

[parameters]
BM = 64
BN = 64
BK = 32
TM = 4
TN = 4
PAD_A = 4

[search]
BM = [32, 64, 128]
BN = [32, 64, 128]
BK = [16, 32]

[[constraint]]
check = "BM % TM == 0 and BN % TN == 0 and (BM / TM) * (BN / TN) <= 1024"
says = "the tile must split evenly among at most 1024 threads"

[[constraint]]
check = "BM * BK % ((BM / TM) * (BN / TN)) == 0 and BN * BK % ((BM / TM) * (BN / TN)) == 0"
says = "every thread must copy the same number of floats"

[[constraint]]
check = "(BM * (BK + PAD_A) + BK * BN) * 4 <= 49152"
says = "both tiles must fit in 48 KB of shared memory"

[[launch]]
kernel = "strided_tile"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / TM) * (BN / TN)", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "FFMA", "BAR.SYNC"]
absent = ["STS.128", "LDG.E.128", "LDL", "STL"]
max_registers = 128

[[expect.profile]]
says = "shared accesses do not conflict"
check = "metric('shared_conflict_excess') < 0.05"

[[expect.profile]]
says = "a store of C touches four sectors, all of them in full"
check = "abs(metric('st_sectors_per_request') - 4) < 0.1"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
#include "gemm_fp32/strided_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 768 / THREADS)
strided_tile(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    // A warp spans two rows of threads, which read neighbouring rows of A's tile: the pad keeps those in different banks.
    strided_tile_gemm<false, 0>(A, B, C, M, N, K);
}
