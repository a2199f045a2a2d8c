// Online softmax of the attention rungs: the scale folded into powers of two, and what a thread keeps of its rows.
#pragma once

#include "common/common.cuh"

// Scores are q * k / sqrt(D), and exp(x) is 2^(x log2 e). The product of both factors turns exp of a difference of scores into one
// multiply-add and one instruction of the special-function unit.
template <int D>
__device__ __forceinline__ constexpr float log2_scale() {
    static_assert(D == 64 || D == 128, "the head sizes that the ladder knows");
    return D == 64 ? 0.18033688011112042f : 0.12751743082459868f;
}

#define MINUS_INFINITY __int_as_float(0xff800000)

// 2^x to within 2 ulp; 0 for minus infinity, and where the result would be subnormal.
__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// How many keys query `row` sees: itself and those before it, or all N.
__device__ __forceinline__ int keys_seen(int row, int N, bool causal) { return causal ? min(row + 1, N) : N; }

// Blocks of WIDTH keys that the rows up to last_row (exclusive) need.
template <int WIDTH>
__device__ __forceinline__ int key_blocks(int last_row, int N, bool causal) {
    return ceil_div(causal ? min(last_row, N) : N, WIDTH);
}

// What a thread knows of two rows: the largest score so far and its own part of the sum of powers relative to it.
struct RowPair {
    float largest[2], sum[2];
};

// The accumulators of mma and wgmma hold, for each eight columns, two neighbours of one row and then two of the row eight below. Takes such
// scores (in place: scores come in, their powers relative to the largest so far go out) into `rows`, of which four neighbouring lanes share
// each. Returns by how much earlier sums and products have to be multiplied. Of the first scores of a row, one at least is no minus infinity.
template <int D, bool FIRST, int COUNT>
__device__ __forceinline__ void online_softmax(float (&s)[COUNT], RowPair& rows, float (&factor)[2]) {
    constexpr float SCALE = log2_scale<D>();
    float largest[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        largest[r] = s[2 * r];
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) largest[r] = fmaxf(largest[r], fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
        largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 1));
        largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 2));
        if (!FIRST) largest[r] = fmaxf(largest[r], rows.largest[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float shift = largest[r] * SCALE;
        factor[r] = FIRST ? 0.f : exp2_approx((rows.largest[r] - largest[r]) * SCALE);
        rows.largest[r] = largest[r];
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; ++e) {
                s[i + e] = exp2_approx(fmaf(s[i + e], SCALE, -shift));
                sum += s[i + e];
            }
        rows.sum[r] = FIRST ? sum : fmaf(rows.sum[r], factor[r], sum);
    }
}

// The whole sum of each row, from the parts of the four lanes that share it; its reciprocal, since a quotient is wanted.
__device__ __forceinline__ void finish_rows(const RowPair& rows, float (&inverse)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        inverse[r] = __fdividef(1.f, sum);
    }
}

// Scores of keys that a row does not see become minus infinity. `col0` and `row0` belong to the tile that the scores are of, where this thread
// holds rows lane / 4 and lane / 4 + 8.
template <int COUNT>
__device__ __forceinline__ void mask_scores(float (&s)[COUNT], int row0, int col0, int N, bool causal) {
    const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int visible = keys_seen(row0 + lane / 4 + 8 * r, N, causal) - col0 - lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                if (i * 2 + e >= visible) s[i + 2 * r + e] = MINUS_INFINITY;
    }
}
