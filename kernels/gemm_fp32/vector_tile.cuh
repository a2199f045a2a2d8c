// Shared by the rungs that keep A's tile transposed and copy it in quartets of floats; the -D
// parameters of the rung give the sizes.
#pragma once
#include "common/common.cuh"

#define THREADS ((BM / TM) * (BN / TN))
static_assert(BM % TM == 0 && BN % TN == 0 && TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0,
              "everything moves in quartets");
static_assert(BM * BK % (16 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0,
              "every thread copies the same share");
static_assert(BK / 4 % LANES_K == 0, "the lanes must cover the tile's depth evenly");

// Where A's transposed tile keeps row k of BM floats; each rung defines it.
__device__ int row_of_a(int k);

// Element i of a quartet; i is known at compile time wherever this is used.
__device__ __forceinline__ float element(const float4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Copies two tiles that reach over an edge, or rows that are not 16-byte aligned: float by float,
// zeros beyond the edge. Kept small and not unrolled, because registers taken here would cost the
// full tiles their occupancy.
__device__ __forceinline__ void copy_edge(float* As, float* Bs, const float* __restrict__ A,
                                          const float* __restrict__ B, int rows, int cols,
                                          int depth, int N, int K) {
#pragma unroll 1
    for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
        const int m = i / BK, k = i % BK;
        As[row_of_a(k) + m] = m < rows && k < depth ? A[(size_t)m * K + k] : 0.f;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
        const int k = i / BN, n = i % BN;
        Bs[i] = k < depth && n < cols ? B[(size_t)k * N + n] : 0.f;
    }
}
