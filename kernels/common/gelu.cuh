// GELU in its tanh form, 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): the constants, and the function in one piece.
#pragma once

#include "common/common.cuh"

#define GELU_CUBIC 0.044715f
#define GELU_SCALE 0.7978845608028654f  // sqrt(2 / pi)

__device__ __forceinline__ float gelu_argument(float x) { return GELU_SCALE * (x + GELU_CUBIC * x * x * x); }

__device__ __forceinline__ float gelu_tanh(float x) { return 0.5f * x * (1.f + tanhf(gelu_argument(x))); }

// The same function, since 0.5 (1 + tanh u) = 1 / (1 + exp(-2 u)): one exponential and one reciprocal, no branch,
// and nothing cancels where tanh is near -1.
__device__ __forceinline__ float gelu_logistic(float x) { return __fdividef(x, 1.f + __expf(-2.f * gelu_argument(x))); }
