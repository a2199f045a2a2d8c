// Luma of ITU-R BT.601 (0.299 R + 0.587 G + 0.114 B) with weights in 256ths, rounded to nearest: exact in integers, so every rung must
// agree to the bit.
#pragma once

#include "common/common.cuh"

#define LUMA_R 77u
#define LUMA_G 150u
#define LUMA_B 29u
#define LUMA_WEIGHTS (LUMA_R | LUMA_G << 8 | LUMA_B << 16)  // as bytes, in the order of a pixel in memory

__device__ __forceinline__ unsigned char luma(unsigned r, unsigned g, unsigned b) { return (LUMA_R * r + LUMA_G * g + LUMA_B * b + 128u) >> 8; }

// Four pixels, 12 bytes in three words, to four gray bytes in one. The weight of a byte that belongs to a neighbouring pixel is 0.
__device__ __forceinline__ unsigned luma4(unsigned w0, unsigned w1, unsigned w2) {
    const unsigned g0 = __dp4a(w0, LUMA_WEIGHTS, 128u);
    const unsigned g1 = __dp4a(__funnelshift_r(w0, w1, 24), LUMA_WEIGHTS, 128u);
    const unsigned g2 = __dp4a(__funnelshift_r(w1, w2, 16), LUMA_WEIGHTS, 128u);
    const unsigned g3 = __dp4a(w2, LUMA_WEIGHTS << 8, 128u);
    return __byte_perm(__byte_perm(g0, g1, 0x0051), __byte_perm(g2, g3, 0x0051), 0x5410);  // byte 1 of each: the sum over 256
}
