// What the rungs of the reduction ladder share: the element type, and the sum across a block by shuffles.
#pragma once

#include "common/common.cuh"

// int32 is summed as unsigned: overflow then wraps around modulo 2^32, and the bits are those of the signed sum.
#if defined(ELEM_FLOAT32)
typedef float Elem;
typedef float4 Elem4;
#elif defined(ELEM_INT32)
typedef unsigned int Elem;
typedef uint4 Elem4;
#else
#error "compile with -DELEM_INT32=1 or -DELEM_FLOAT32=1"
#endif

__device__ __forceinline__ Elem warp_sum(Elem v) {
    #pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;  // complete in lane 0
}

// Sum over a block of THREADS threads (a multiple of 32, at most 1024); complete in thread 0. Every thread must call it.
template <int THREADS>
__device__ __forceinline__ Elem block_sum(Elem v) {
    constexpr int warps = THREADS / WARP_SIZE;
    __shared__ Elem of_warp[warps];
    v = warp_sum(v);
    if (threadIdx.x % WARP_SIZE == 0) of_warp[threadIdx.x / WARP_SIZE] = v;
    __syncthreads();
    if (threadIdx.x < WARP_SIZE) v = warp_sum(threadIdx.x < warps ? of_warp[threadIdx.x] : Elem(0));
    __syncthreads();  // of_warp may be used again
    return v;
}
