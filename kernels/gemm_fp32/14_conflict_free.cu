/*+++
title = "Skewed rows: no bank conflicts"
idea = """\
Lanes that transpose A store four rows of the tile apart, where all rows start in bank 0. Four unused floats after every fourth row shift \
each lane's quartet by four banks, so that eight lanes cover all 32 banks and each store takes its minimum of wavefronts."""
kind = "step"
compared_with = "rectangular_tile"
removes = "shared-bank-conflict"
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
#include "gemm_fp32/vector_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
conflict_free(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    vector_tile_gemm(A, B, C, M, N, K);
}
