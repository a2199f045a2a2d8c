/*+++
title = "Registers and shuffles"
idea = """\
A thread loads 16 bytes at a time and adds up its four elements in registers, a warp scans its \
lanes' sums by five shuffles, and shared memory holds one number per warp: one barrier instead of \
20. Memory is now the limit, and the array passes through it four times."""
kind = "step"
compared_with = "scan_padded"
+++*/

#include "scan/tile.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_shuffle_1(const Elem* __restrict__ x, Elem* __restrict__ y, Elem* __restrict__ sums, long long n) {
    __shared__ Elem of_warp[WARPS];
    const long long first = (long long)blockIdx.x * TILE;
    Tile tile;
    tile.load(x, first, n);
    Elem before, all;
    meet(tile.scan(), of_warp, before, all);
    tile.store(y, first, n, before);
    if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(1024)
scan_shuffle_2(Elem* __restrict__ sums, long long n) { scan_sums<1024>(sums, ceil_div(n, (long long)TILE)); }

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_shuffle_3(Elem* __restrict__ y, const Elem* __restrict__ sums, long long n) {
    const long long first = (long long)blockIdx.x * TILE;
    Tile tile;
    tile.load(y, first, n);
    tile.store(y, first, n, sums[blockIdx.x]);
}

/*+++
minimum_cc = "8.0"

[source]
document = "S. Sengupta, M. Harris and M. Garland, Efficient Parallel Scan Algorithms for GPUs"

[parameters]
BLOCK = 256
VECTORS = 4               # of 16 bytes a thread

[search]
BLOCK = [128, 256, 512]
VECTORS = [1, 2, 4, 8]

[[launch]]
kernel = "scan_shuffle_1"
grid = ["ceil_div(n, 4 * VECTORS * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "sums", "n"]

[[launch]]
kernel = "scan_shuffle_2"
grid = ["1", "1", "1"]
block = ["1024", "1", "1"]
shared = "0"
args = ["sums", "n"]

[[launch]]
kernel = "scan_shuffle_3"
grid = ["ceil_div(n, 4 * VECTORS * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["y", "sums", "n"]

[scratch.sums]
dtype = "int32"
count = "ceil_div(n, 4 * VECTORS * BLOCK)"
zeroed = false

[expect.sass]
present = ["LDG.E.128", "STG.E.128", "SHFL.UP", "BAR.SYNC"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "hardly a barrier is left"
check = "executed('BAR') < 0.1 * prev_executed('BAR')"

[[expect.profile]]
says = "far fewer shared-memory instructions"
check = "executed('LDS') + executed('STS') < 0.2 * (prev_executed('LDS') + prev_executed('STS'))"
+++*/
