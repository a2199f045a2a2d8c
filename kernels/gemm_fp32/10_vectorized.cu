/*+++
title = "Vector loads and stores"
idea = """\
Everything moves 16 bytes at a time: a thread loads a 4 x 4 block of A as four quartets, transposes it in registers and stores it as four \
quartets, so that one shared store or load does the work of four. The transposed quartets still land in too few banks."""
kind = "step"
compared_with = "mini_tile"
removes = "shared-instruction-pressure"
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = "GEMM worklog on an RTX 4090; S. Boehm, How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance: a Worklog; SGEMM study on a V100"
claim = "64.3 us at 1024 (RTX 4090); 19 TFLOP/s (RTX A6000); 11.4 TFLOP/s (Tesla V100)"
device = "RTX 4090, RTX A6000, Tesla V100"

[parameters]
BM = 64
BN = 64
BK = 64
TM = 4
TN = 4
SKEW = 0
LANES_K = 16

[search]
BK = [32, 64]
TM = [4, 8]
LANES_K = [4, 8, 16]

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
Shared reads do not fall: in mini_tile nvcc 13 already merges four neighbouring scalar reads into one LDS.128, along k for A and along the \
row for B. It cannot do so for the stores, whose values come from predicated scalar loads, and those are what this rung divides by four."""
+++*/
#include "gemm_fp32/vector_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 768 / THREADS)
vectorized(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    vector_tile_gemm(A, B, C, M, N, K);
}
