/*+++
title = "Reduce, then scan"
idea = """\
The first launch only adds up each tile; nothing is written but one number a tile. The last launch \
reads the tile again, now knowing what lies before it, and writes each result once: two reads and \
one write of the array instead of two and two."""
kind = "step"
compared_with = "scan_shuffle"
+++*/

#include "scan/tile.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_reduce_first_1(const Elem* __restrict__ x, Elem* __restrict__ sums, long long n) {
    __shared__ Elem of_warp[WARPS];
    Tile tile;
    tile.load(x, (long long)blockIdx.x * TILE, n);
    Elem before, all;
    meet(tile.sum(), of_warp, before, all);
    if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(1024)
scan_reduce_first_2(Elem* __restrict__ sums, long long n) { scan_sums<1024>(sums, ceil_div(n, (long long)TILE)); }

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_reduce_first_3(const Elem* __restrict__ x, Elem* __restrict__ y, const Elem* __restrict__ sums, long long n) {
    __shared__ Elem of_warp[WARPS];
    const long long first = (long long)blockIdx.x * TILE;
    Tile tile;
    tile.load(x, first, n);
    Elem before, all;
    meet(tile.scan(), of_warp, before, all);
    tile.store(y, first, n, sums[blockIdx.x] + before);
}

/*+++
minimum_cc = "8.0"

[source]
document = "Y. Dotsenko et al., Fast Scan Algorithms on Graphics Processors"

[parameters]
BLOCK = 256
VECTORS = 4               # of 16 bytes a thread

[search]
BLOCK = [128, 256, 512]
VECTORS = [1, 2, 4, 8]

[[launch]]
kernel = "scan_reduce_first_1"
grid = ["ceil_div(n, 4 * VECTORS * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "sums", "n"]

[[launch]]
kernel = "scan_reduce_first_2"
grid = ["1", "1", "1"]
block = ["1024", "1", "1"]
shared = "0"
args = ["sums", "n"]

[[launch]]
kernel = "scan_reduce_first_3"
grid = ["ceil_div(n, 4 * VECTORS * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "sums", "n"]

[scratch.sums]
dtype = "int32"
count = "ceil_div(n, 4 * VECTORS * BLOCK)"
zeroed = false

[expect.sass]
present = ["LDG.E.128", "STG.E.128", "SHFL.UP", "REDUX", "BAR.SYNC"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the array is written once, not twice"
check = "executed('STG.E.128') < 0.55 * prev_executed('STG.E.128')"
+++*/
