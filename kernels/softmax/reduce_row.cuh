// What the rungs of the softmax ladder share: the maximum and the sum of a row by shuffles, across a warp and across a block.
#pragma once

#include <float.h>

#include "common/common.cuh"

#define LOWEST (-FLT_MAX)  // below every element, and unlike minus infinity it gives no NaN when it is subtracted from itself

struct Larger {
    static constexpr float NEUTRAL = LOWEST;
    __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

struct Total {
    static constexpr float NEUTRAL = 0.f;
    __device__ static float of(float a, float b) { return a + b; }
};

// Across a warp; complete in all lanes.
template <typename Operation>
__device__ __forceinline__ float across_warp(float v) {
    #pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) v = Operation::of(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
}

// Across `warps` warps that share of_warp[WARP_SIZE]; complete in all threads. of_warp must not be used for anything else before a barrier.
template <typename Operation>
__device__ __forceinline__ float across_block(float v, float* of_warp, int warps) {
    const int lane = threadIdx.x % WARP_SIZE;
    v = across_warp<Operation>(v);
    if (warps == 1) return v;
    if (lane == 0) of_warp[threadIdx.x / WARP_SIZE] = v;
    __syncthreads();
    return across_warp<Operation>(lane < warps ? of_warp[lane] : Operation::NEUTRAL);
}
