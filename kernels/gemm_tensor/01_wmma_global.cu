/*+++
title = "WMMA from global memory"
idea = """\
One warp computes one 16 x 16 tile of C with the WMMA interface and loads every fragment from \
global memory. The tensor cores do the products, but each byte loaded serves only 16 \
multiply-adds, so the kernel waits for the caches."""
kind = "step"
compared_with = ""
+++*/

#include "common/common.cuh"
#include "common/wmma_tile.cuh"

using namespace nvcuda;

extern "C" __global__ void __launch_bounds__(WARPS_M * WARPS_N * WARP_SIZE)
wmma_global(const elem16* __restrict__ A, const elem16* __restrict__ B, elem16* __restrict__ C, int M, int N, int K) {
    __shared__ __align__(32) float stage[WARPS_M * WARPS_N][16 * 16];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const int row0 = (blockIdx.y * WARPS_M + warp / WARPS_N) * 16;
    const int col0 = (blockIdx.x * WARPS_N + warp % WARPS_N) * 16;
    if (row0 >= M || col0 >= N) return;  // a whole warp; nothing below waits for the block

    // WMMA loads need rows at a multiple of 16 bytes and whole tiles; pieces that are neither go through shared memory, padded with zeros.
    const bool vector_a = K % CHUNK == 0, vector_b = N % CHUNK == 0;
    const bool whole = vector_a && vector_b && row0 + 16 <= M && col0 + 16 <= N;
    elem16* piece_a = reinterpret_cast<elem16*>(stage[warp]);
    elem16* piece_b = piece_a + 16 * 16;

    FragmentA a;
    FragmentB b;
    FragmentC sum;
    wmma::fill_fragment(sum, 0.f);
    for (int k0 = 0; k0 < K; k0 += 16) {
        if (whole && k0 + 16 <= K) {
            load_global(a, A + (size_t)row0 * K + k0, K);
            load_global(b, B + (size_t)k0 * N + col0, N);
        } else {
            const int r = lane / 2, c = lane % 2 * CHUNK;
            const uint4 chunk_a = load_chunk_guarded(A + (size_t)(row0 + r) * K + k0 + c, row0 + r < M ? K - (k0 + c) : 0, vector_a);
            const uint4 chunk_b = load_chunk_guarded(B + (size_t)(k0 + r) * N + col0 + c, k0 + r < K ? N - (col0 + c) : 0, vector_b);
            __syncwarp();  // the piece before has been read
            *reinterpret_cast<uint4*>(piece_a + r * 16 + c) = chunk_a;
            *reinterpret_cast<uint4*>(piece_b + r * 16 + c) = chunk_b;
            __syncwarp();
            load_shared(a, piece_a, 16);
            load_shared(b, piece_b, 16);
        }
        wmma::mma_sync(sum, a, b, sum);
    }
    __syncwarp();
    store_wmma_tile(C, row0, col0, M, N, sum, stage[warp]);
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, WARPS_M * 16) <= 65535", says = "M must be at most 65535 * 16 * WARPS_M: the grid's y dimension ends there" }]

[source]
document = "GEMM notes, WMMA chapter (its tile pointers never advance along K; fixed here)"

[parameters]
WARPS_M = 2
WARPS_N = 2

[[launch]]
kernel = "wmma_global"
grid = ["ceil_div(N, WARPS_N * 16)", "ceil_div(M, WARPS_M * 16)", "1"]
block = ["WARPS_M * WARPS_N * 32", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["HMMA.16816.F32", "LDG.E"]
absent = ["LDL", "STL", "HGMMA", "LDGSTS"]
max_registers = 128

[[expect.profile]]
says = "the product runs on the tensor cores: M * N * K / 2048 warp instructions, no more"
check = "executed('HMMA') * 2048 == M * N * K"

[[expect.profile]]
says = "warps wait for fragments from the caches"
check = "stall_share('long_scoreboard') + stall_share('lg_throttle') > 0.4"
+++*/
