/*+++
title = "Tiles that wait in shared memory"
idea = """\
A tile waits for the slowest of all tiles before it, in registers. Here most of it waits in shared \
memory, fetched by TMA, so that more tiles are under way on an SM. Only its sum is \
made at once; it is scanned when what lies before it is known."""
kind = "step"
compared_with = "scan_look_back"
+++*/

#include "common/tma.cuh"
#include "scan/look_back.cuh"

#define WAITING (VECTORS - HELD)  // vectors of a thread that wait in shared memory; the rest stays in registers

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_PER_SM)
scan_in_flight(const Elem* __restrict__ x, Elem* __restrict__ y, unsigned long long* words, unsigned long long* tickets, long long n) {
    extern __shared__ __align__(128) Elem4 waiting[];
    __shared__ Elem of_warp[WARPS], before_tile;
    __shared__ Turn turn;
    __shared__ mbarrier arrived;
    if (threadIdx.x == 0) {
        mbarrier_init(&arrived, WARPS);
        mbarrier_init_fence();
        turn = draw(tickets, gridDim.x);
    }
    __syncthreads();
    const long long first = (long long)turn.tile * TILE;
    // A warp's vectors lie in one piece, as in memory.
    const int lane = threadIdx.x % WARP_SIZE;
    Elem4* const piece = waiting + threadIdx.x / WARP_SIZE * (WAITING * WARP_SIZE);
    Elem4* const mine = piece + lane;
    Elem4 held[HELD];

    if (first + TILE <= n) {
        if (lane == 0) {
            mbarrier_arrive_expect(&arrived, 16 * WAITING * WARP_SIZE);
            bulk_load(piece, x + Tile::place(first, 0), 16 * WAITING * WARP_SIZE, &arrived);
        }
        #pragma unroll
        for (int k = 0; k < HELD; ++k) held[k] = *reinterpret_cast<const Elem4*>(x + Tile::place(first, WAITING + k));
        mbarrier_wait(&arrived, 0);
    } else {
        #pragma unroll 1
        for (int k = 0; k < WAITING; ++k) mine[k * WARP_SIZE] = Tile::load_vector(x, Tile::place(first, k), n);
        #pragma unroll
        for (int k = 0; k < HELD; ++k) held[k] = Tile::load_vector(x, Tile::place(first, WAITING + k), n);
    }
    Elem sum = 0;
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        const Elem4 v = k < WAITING ? mine[k * WARP_SIZE] : held[k - WAITING];
        sum += (v.x + v.y) + (v.z + v.w);
    }

    Elem before_warp, all;
    meet(__reduce_add_sync(0xffffffffu, sum), of_warp, before_warp, all);
    if (threadIdx.x < WARP_SIZE) {
        const Elem before = exchange(words, turn, all);
        if (threadIdx.x == 0) before_tile = before;
    }
    __syncthreads();

    Elem before = before_tile + before_warp;
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        Elem4 v = k < WAITING ? mine[k * WARP_SIZE] : held[k - WAITING];
        scan_run(v, before);
        Tile::store_vector(y, Tile::place(first, k), n, v);
    }
}

/*+++
minimum_cc = "9.0"

[source]
document = "Beyond the paper: more tiles in flight"

[parameters]
BLOCK = 512
VECTORS = 16              # of 16 bytes a thread
HELD = 8                  # of them in registers
BLOCKS_PER_SM = 2         # resident at once where shared memory allows
WINDOW = 1                # words a lane reads at a time

[search]
BLOCK = [128, 256, 512]
VECTORS = [6, 8, 9, 10, 11, 12, 16]
HELD = [1, 2, 3, 4, 8]
BLOCKS_PER_SM = [2, 3, 4, 6, 8, 12]
WINDOW = [1, 2, 4]
[[constraint]]
check = "BLOCK * BLOCKS_PER_SM <= 1536"
says = "more threads than an SM of compute capability 8.6 or 8.9 holds"
[[constraint]]
check = "HELD < VECTORS"
says = "some of a tile waits in shared memory"
[[constraint]]
check = "BLOCK * BLOCKS_PER_SM * (4 * HELD + 32) <= 65536"
says = "the vectors held need more registers than an SM has"
[[constraint]]
check = "BLOCKS_PER_SM * (16 * (VECTORS - HELD) * BLOCK + 2048) <= 233472"
says = "the tiles that wait need more shared memory than an SM has"

[[launch]]
kernel = "scan_in_flight"
grid = ["ceil_div(n, 4 * VECTORS * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "16 * (VECTORS - HELD) * BLOCK"
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
present = ["UBLKCP", "SYNCS", "LDS.128", "STG.E.128", "SHFL.UP", "REDUX", "ATOMG|ATOM", "LDG.E.64.STRONG.GPU", "STG.E.64.STRONG.GPU"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "half of a tile comes by TMA, which no thread loads"
check = "executed('LDG.E.128') <= 0.55 * prev_executed('LDG.E.128')"
+++*/
