// Operations that several pairs share, so that both halves of a pair compute the same thing.
#pragma once
#include "common/common.cuh"

__device__ __forceinline__ float affine(float v) { return fmaf(1.5f, v, 0.25f); }

// One step moves v the (c + 1) / 4096th part of the way to 1/2; c is the element's class. Both numbers are exact in float.
__host__ __device__ constexpr float step_factor(int c) { return 1.f - (float)(c + 1) / 4096.f; }
__host__ __device__ constexpr float step_offset(int c) { return (float)(c + 1) / 8192.f; }

__device__ __forceinline__ float step(float v) { return fmaf(v, step_factor(0), step_offset(0)); }

// `steps` steps in a row, each waiting for the one before.
__device__ __forceinline__ float iterate(float v, int steps) {
#pragma unroll 16
    for (int k = 0; k < steps; ++k) v = step(v);
    return v;
}
