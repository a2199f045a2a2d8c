/*+++
title = "Shared tiles with a strided copy (planted)"
idea = """\
A 128 x 128 block tile in shared memory lets 16 warps share what they load. But B is copied with \
neighbouring lanes a whole row of memory apart: every load touches 32 sectors, and the stores into \
shared memory fall into two banks. The defect of the source document, kept so that a profile can \
find it."""
kind = "planted"
compared_with = "wmma_global"
removes = "missing-data-reuse"
+++*/

#include "common/common.cuh"
#include "common/wmma_tile.cuh"

using namespace nvcuda;

#define WARPS_N (BN / WN)
#define WARPS ((BM / WM) * WARPS_N)
#define THREADS (WARPS * WARP_SIZE)

struct Tiles {
    elem16 a[BM][BK + PAD];
    elem16 b[BN][BK];  // a row for each column of C, without padding: rows 64 bytes apart share two banks
};

extern "C" __global__ void __launch_bounds__(THREADS)
wmma_smem_strided(const elem16* __restrict__ A, const elem16* __restrict__ B_t, elem16* __restrict__ C, int M, int N, int K) {
    __shared__ union { __align__(32) Tiles tiles; float stage[WARPS][16 * 16]; } shared;
    Tiles& tiles = shared.tiles;
    const int warp = threadIdx.x / WARP_SIZE;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;
    const size_t pitch_b = (size_t)ceil_div(K, CHUNK) * CHUNK;  // B_t's rows are padded to 16 bytes

    FragmentC sum[WM / 16][WN / 16];
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int j = 0; j < WN / 16; ++j) wmma::fill_fragment(sum[i][j], 0.f);

    for (int k0 = 0; k0 < K; k0 += BK) {
        copy_tile<BK, THREADS>(tiles.a, A, row0, k0, M, K, K % CHUNK == 0);
        // The planted defect: lanes walk columns of C, which lie K elements apart in B_t.
        const int n = threadIdx.x % BN;
#pragma unroll
        for (int i = 0; i < BN * BK / THREADS; ++i) {
            const int k = threadIdx.x / BN + i * (THREADS / BN);
            tiles.b[n][k] = col0 + n < N && k0 + k < K ? B_t[(col0 + n) * pitch_b + (k0 + k)] : to_elem16(0.f);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            FragmentA a[WM / 16];
            FragmentBColumns b[WN / 16];
#pragma unroll
            for (int i = 0; i < WM / 16; ++i) load_shared(a[i], &tiles.a[warp_row + i * 16][k], BK + PAD);
#pragma unroll
            for (int j = 0; j < WN / 16; ++j) load_shared(b[j], &tiles.b[warp_col + j * 16][k], BK);
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

[[constraint]]
check = "BM % WM == 0 and BN % WN == 0 and WM % 16 == 0 and WN % 16 == 0 and BK % 16 == 0"
says = "tiles are made of 16 x 16 x 16 fragments"

[[constraint]]
check = "(BM / WM) * (BN / WN) * 32 % BN == 0 and BN * BK % ((BM / WM) * (BN / WN) * 32) == 0"
says = "every thread keeps to one column of the tile, and copies the same number of elements"

[[launch]]
kernel = "wmma_smem_strided"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / WM) * (BN / WN) * 32", "1", "1"]
shared = "0"
args = ["A", "B_t", "C", "M", "N", "K"]

[expect.sass]
present = ["HMMA.16816.F32", "LDG.E.U16", "STS.U16", "LDSM"]
absent = ["LDL", "STL", "HGMMA", "LDGSTS"]
max_registers = 128

[[expect.profile]]
says = "the product runs on the tensor cores: M * N * K / 2048 warp instructions, no more"
check = "executed('HMMA') * 2048 == M * N * K"

[[expect.profile]]
says = "a load of B touches one sector per lane"
check = "metric('ld_sectors_per_request') > 16"

[[expect.profile]]
says = "the stores of B collide in two banks"
check = "metric('shared_conflict_excess') > 0.5"

[[measured]]
gpu = "NVIDIA H200"
says = """\
5.1 and 1.7 times the time of wmma_global at 512 and 1024, faster from 2048 on: 16 and 64 blocks \
for 132 SMs, and nothing hides the strided copy."""
+++*/
