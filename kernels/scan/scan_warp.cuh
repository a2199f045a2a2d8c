// What the rungs of the scan ladder share: the scan across a warp, and the small launches around the first one.
#pragma once

#include "common/common.cuh"

typedef unsigned int Elem;  // int32 summed as unsigned: overflow wraps around modulo 2^32, and the bits are those of the signed sum
typedef uint4 Elem4;

// Inclusive sums across a warp.
__device__ __forceinline__ Elem scan_warp(Elem v) {
    const int lane = threadIdx.x % WARP_SIZE;
    #pragma unroll
    for (int offset = 1; offset < WARP_SIZE; offset *= 2) {
        const Elem before = __shfl_up_sync(0xffffffffu, v, offset);
        if (lane >= offset) v += before;
    }
    return v;
}

// One block of THREADS turns `count` sums into the sums of all before each, in place, 4 * THREADS at a time.
template <int THREADS>
__device__ __forceinline__ void scan_sums(Elem* sums, long long count) {
    constexpr int WARPS = THREADS / WARP_SIZE;
    __shared__ Elem of_warp[WARPS];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    Elem carry = 0;
    for (long long first = 0; first < count; first += 4 * THREADS) {
        const long long i = first + 4 * threadIdx.x;
        Elem v[4], mine = 0;
        #pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = i + k < count ? sums[i + k] : 0;
        #pragma unroll
        for (int k = 0; k < 4; ++k) mine += v[k];
        const Elem upto = scan_warp(mine);
        if (lane == WARP_SIZE - 1) of_warp[warp] = upto;
        __syncthreads();
        const Elem upto_warp = scan_warp(lane < WARPS ? of_warp[lane] : 0);
        Elem before = carry + upto - mine + (warp ? __shfl_sync(0xffffffffu, upto_warp, warp - 1) : 0);
        carry += __shfl_sync(0xffffffffu, upto_warp, WARPS - 1);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (i + k < count) sums[i + k] = before;
            before += v[k];
        }
        __syncthreads();  // of_warp is written again
    }
}
