/*+++
title = "Decoupled look-back"
idea = """\
One launch reads each element once and writes each result once. A block publishes the sum of its \
tile, then adds up the sums of the tiles before it, a warp's worth at a time, until it meets one \
that already knows everything before it. Flag and sum share one 64-bit word."""
kind = "step"
compared_with = "scan_reduce_first"
+++*/

#include "scan/look_back.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_PER_SM)
scan_look_back(const Elem* __restrict__ x, Elem* __restrict__ y, unsigned long long* words, unsigned long long* tickets, long long n) {
    __shared__ Elem of_warp[WARPS], before_tile;
    __shared__ Turn turn;
    if (threadIdx.x == 0) turn = draw(tickets, gridDim.x);
    __syncthreads();
    const long long first = (long long)turn.tile * TILE;

    Tile tile;
    tile.load(x, first, n);
    Elem before_warp, all;
    meet(tile.scan(), of_warp, before_warp, all);
    if (threadIdx.x < WARP_SIZE) {
        const Elem before = exchange(words, turn, all);
        if (threadIdx.x == 0) before_tile = before;
    }
    __syncthreads();
    tile.store(y, first, n, before_tile + before_warp);
}

/*+++
minimum_cc = "8.0"

[source]
document = "D. Merrill and M. Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back"

[parameters]
BLOCK = 512
VECTORS = 8               # of 16 bytes a thread
BLOCKS_PER_SM = 2         # resident at once
WINDOW = 1                # words a lane reads at a time

[search]
BLOCK = [128, 256, 512]
VECTORS = [2, 4, 6, 8, 12]
BLOCKS_PER_SM = [1, 2, 3, 4, 5, 6, 8]
WINDOW = [1, 2, 4]
[[constraint]]
check = "BLOCK * BLOCKS_PER_SM <= 1536"
says = "more threads than an SM of compute capability 8.6 or 8.9 holds"
[[constraint]]
check = "BLOCK * BLOCKS_PER_SM * (4 * VECTORS + 24) <= 65536"
says = "the tiles need more registers than an SM has"

[[launch]]
kernel = "scan_look_back"
grid = ["ceil_div(n, 4 * VECTORS * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "words", "tickets", "n"]

[scratch.words]          # one a tile; they start as zeros, which is no run's number
dtype = "uint64"
count = "ceil_div(n, 4 * VECTORS * BLOCK)"
zeroed = false

[scratch.tickets]
dtype = "uint64"
count = "1"
zeroed = false

[expect.sass]
present = ["LDG.E.128", "STG.E.128", "SHFL.UP", "VOTE", "REDUX", "ATOMG|ATOM", "LDG.E.64.STRONG.GPU", "STG.E.64.STRONG.GPU"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "every element is read once and written once, 8 bytes together, and the words of the look-back add a few percent"
check = "metric('l1_global_bytes') < 1.05 * 8 * n"
+++*/
