/*+++
title = "Shared tiles, copied along rows"
idea = """\
The same 128 x 128 tile with both copies fixed: neighbouring lanes read neighbouring 16-byte \
chunks of a row, and rows in shared memory are padded by 16 bytes, so that the eight rows of a \
fragment load fall into different banks."""
kind = "step"
compared_with = "wmma_smem_strided"
removes = "uncoalesced-global-access"
+++*/

#include "common/common.cuh"
#include "common/wmma_tile.cuh"

using namespace nvcuda;

#define WARPS_N (BN / WN)
#define WARPS ((BM / WM) * WARPS_N)
#define THREADS (WARPS * WARP_SIZE)

struct Tiles {
    elem16 a[BM][BK + PAD];
    elem16 b[BK][BN + PAD];
};

extern "C" __global__ void __launch_bounds__(THREADS)
wmma_smem(const elem16* __restrict__ A, const elem16* __restrict__ B, elem16* __restrict__ C, int M, int N, int K) {
    __shared__ union { __align__(32) Tiles tiles; float stage[WARPS][16 * 16]; } shared;
    Tiles& tiles = shared.tiles;
    const int warp = threadIdx.x / WARP_SIZE;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;

    FragmentC sum[WM / 16][WN / 16];
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int j = 0; j < WN / 16; ++j) wmma::fill_fragment(sum[i][j], 0.f);

    for (int k0 = 0; k0 < K; k0 += BK) {
        copy_tile<BK, THREADS>(tiles.a, A, row0, k0, M, K, K % CHUNK == 0);
        copy_tile<BN, THREADS>(tiles.b, B, k0, col0, K, N, N % CHUNK == 0);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            FragmentA a[WM / 16];
            FragmentB b[WN / 16];
#pragma unroll
            for (int i = 0; i < WM / 16; ++i) load_shared(a[i], &tiles.a[warp_row + i * 16][k], BK + PAD);
#pragma unroll
            for (int j = 0; j < WN / 16; ++j) load_shared(b[j], &tiles.b[k][warp_col + j * 16], BN + PAD);
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
#pragma unroll
                for (int j = 0; j < WN / 16; ++j) wmma::mma_sync(sum[i][j], a[i], b[j], sum[i][j]);
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int j = 0; j < WN / 16; ++j)
            store_wmma_tile(C, row0 + warp_row + i * 16, col0 + warp_col + j * 16, M, N, sum[i][j], shared.stage[warp]);
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = "GEMM notes, WMMA chapter"

[parameters]
BM = 128
BN = 128
BK = 32
WM = 32
WN = 32
PAD = 8

[search]
BM = [64, 128]
BN = [64, 128]
BK = [16, 32, 64]
WM = [32, 64]
WN = [32, 64]

[[constraint]]
check = "BM % WM == 0 and BN % WN == 0 and WM % 16 == 0 and WN % 16 == 0 and BK % 16 == 0"
says = "tiles are made of 16 x 16 x 16 fragments"

[[constraint]]
check = "BM * (BK + PAD) + BK * (BN + PAD) <= 24576"
says = "the tiles must fit in 48 KB of shared memory"

[[launch]]
kernel = "wmma_smem"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / WM) * (BN / WN) * 32", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["HMMA.16816.F32", "LDG.E.128", "STS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4"]
absent = ["LDL", "STL", "HGMMA", "LDGSTS"]
max_registers = 128

[[expect.profile]]
says = "the product runs on the tensor cores: M * N * K / 2048 warp instructions, no more"
check = "executed('HMMA') * 2048 == M * N * K"

[[expect.profile]]
says = """\
a load touches only the sectors it needs: four lanes a 64-byte row piece, sixteen sectors a \
request"""
check = "metric('ld_sectors_per_request') < 16.5 and metric('ld_sectors_per_request') < prev_metric('ld_sectors_per_request')"

[[expect.profile]]
says = "eight elements per load: far fewer load instructions"
check = "executed('LDG') < 0.5 * prev_executed('LDG')"

[[expect.profile]]
says = "bank conflicts fall"
check = "metric('shared_conflict_excess') < 0.5 * prev_metric('shared_conflict_excess')"
+++*/
