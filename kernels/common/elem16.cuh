// The 16-bit floating type of a build (-DELEM_BFLOAT16=1 or -DELEM_FLOAT16=1), its conversions from the fp32 accumulator, and guarded accesses.
#pragma once

#if ELEM_BFLOAT16
#include <cuda_bf16.h>
typedef __nv_bfloat16 elem16;
#define ELEM16_PTX "bf16"  // how PTX names the type in mma and wgmma
#elif ELEM_FLOAT16
#include <cuda_fp16.h>
typedef __half elem16;
#define ELEM16_PTX "f16"
#else
#error "compile with -DELEM_BFLOAT16=1 or -DELEM_FLOAT16=1"
#endif

// Elements in one 16-byte access, the widest a lane can make: tiles are copied in such chunks.
#define CHUNK 8

// Both round to nearest, ties to even.
__device__ __forceinline__ elem16 to_elem16(float v) {
#if ELEM_BFLOAT16
    return __float2bfloat16_rn(v);
#else
    return __float2half_rn(v);
#endif
}

// Two neighbours of a row as one 32-bit word, the first in the low half as it lies in memory.
__device__ __forceinline__ unsigned pack_elem16(float first, float second) {
#if ELEM_BFLOAT16
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
#else
    const __half2 pair = __floats2half2_rn(first, second);
#endif
    return *reinterpret_cast<const unsigned*>(&pair);
}

// A chunk of a row from which `remaining` elements (any int) exist; the rest read as zero.
// `vector` says that the row is 16-byte aligned, so that a whole chunk is one LDG.E.128.
__device__ __forceinline__ uint4 load_chunk_guarded(const elem16* p, int remaining, bool vector) {
    if (vector && remaining >= CHUNK) return *reinterpret_cast<const uint4*>(p);
    const unsigned short* bits = reinterpret_cast<const unsigned short*>(p);
    unsigned word[CHUNK / 2] = {};
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        if (i < remaining) word[i / 2] |= static_cast<unsigned>(bits[i]) << (16 * (i % 2));
    return make_uint4(word[0], word[1], word[2], word[3]);
}

// Rounds eight neighbours of a row and stores the `remaining` of them that exist.
__device__ __forceinline__ void store_chunk_guarded(elem16* p, const float (&v)[CHUNK], int remaining, bool vector) {
    if (vector && remaining >= CHUNK) {
        *reinterpret_cast<uint4*>(p) =
            make_uint4(pack_elem16(v[0], v[1]), pack_elem16(v[2], v[3]), pack_elem16(v[4], v[5]), pack_elem16(v[6], v[7]));
        return;
    }
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        if (i < remaining) p[i] = to_elem16(v[i]);
}

// Rounds and stores the pair of neighbours that a lane holds in every mma accumulator; `aligned` says that the row is 4-byte aligned.
__device__ __forceinline__ void store_pair_guarded(elem16* p, float first, float second, int remaining, bool aligned) {
    if (aligned && remaining >= 2) {
        *reinterpret_cast<unsigned*>(p) = pack_elem16(first, second);
        return;
    }
    if (remaining > 0) p[0] = to_elem16(first);
    if (remaining > 1) p[1] = to_elem16(second);
}
