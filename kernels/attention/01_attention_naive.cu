/*+++
title = "Three kernels, scores in memory"
idea = """\
One kernel computes all scores, one the softmax of each row, one the weighted sums of values. The \
N x N scores of each head go through device memory five times; no product reuses what it reads."""
kind = "step"
compared_with = ""
+++*/

#include "common/elem16.cuh"
#include "attention/softmax.cuh"

// One thread a score. Heads lie one below the other: head h has rows h * N to h * N + N - 1.
extern "C" __global__ void __launch_bounds__(EDGE * EDGE)
attention_naive_scores(const elem16* __restrict__ Q, const elem16* __restrict__ K, float* __restrict__ S, int N, int D, int causal, float scale) {
    const int col = blockIdx.x * EDGE + threadIdx.x, row = blockIdx.y * EDGE + threadIdx.y;
    if (row >= N || col >= keys_seen(row, N, causal)) return;
    const size_t head = (size_t)blockIdx.z * N;
    const elem16* q = Q + (head + row) * D;
    const elem16* k = K + (head + col) * D;
    float sum = 0.f;
    for (int d = 0; d < D; ++d) sum += (float)q[d] * (float)k[d];
    S[(head + row) * N + col] = sum * scale;
}

// One warp a row: the largest score, the sum of exponentials relative to it, and the quotients, which replace the scores.
extern "C" __global__ void __launch_bounds__(WARP_SIZE)
attention_naive_softmax(float* __restrict__ S, int N, int causal) {
    const int row = blockIdx.x, visible = keys_seen(row, N, causal);
    float* s = S + ((size_t)blockIdx.y * N + row) * N;
    float largest = MINUS_INFINITY, sum = 0.f;
    for (int col = threadIdx.x; col < visible; col += WARP_SIZE) largest = fmaxf(largest, s[col]);
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    for (int col = threadIdx.x; col < visible; col += WARP_SIZE) sum += expf(s[col] - largest);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    for (int col = threadIdx.x; col < visible; col += WARP_SIZE) s[col] = __fdividef(expf(s[col] - largest), sum);
}

// One thread an element of the output.
extern "C" __global__ void __launch_bounds__(EDGE * EDGE)
attention_naive_output(const float* __restrict__ S, const elem16* __restrict__ V, elem16* __restrict__ O, int N, int D, int causal) {
    const int d = blockIdx.x * EDGE + threadIdx.x, row = blockIdx.y * EDGE + threadIdx.y;
    if (row >= N || d >= D) return;
    const size_t head = (size_t)blockIdx.z * N;
    const int visible = keys_seen(row, N, causal);
    float sum = 0.f;
    for (int col = 0; col < visible; ++col) sum += S[(head + row) * N + col] * (float)V[(head + col) * D + d];
    O[(head + row) * D + d] = to_elem16(sum);
}

/*+++
minimum_cc = "8.0"

[source]
document = "Attention Is All You Need, scaled dot-product attention"

[parameters]
EDGE = 16

[[launch]]
kernel = "attention_naive_scores"
grid = ["ceil_div(N, EDGE)", "ceil_div(N, EDGE)", "heads"]
block = ["EDGE", "EDGE", "1"]
args = ["Q", "K", "scores", "N", "D", "causal", "scale"]

[[launch]]
kernel = "attention_naive_softmax"
grid = ["N", "heads", "1"]
block = ["32", "1", "1"]
args = ["scores", "N", "causal"]

[[launch]]
kernel = "attention_naive_output"
grid = ["ceil_div(D, EDGE)", "ceil_div(N, EDGE)", "heads"]
block = ["EDGE", "EDGE", "1"]
args = ["scores", "V", "O", "N", "D", "causal"]

[scratch.scores]
dtype = "float32"
count = "heads * N * N"

[expect.sass]
present = ["FFMA", "MUFU.EX2"]
absent = ["HMMA", "HGMMA", "LDS", "LDL", "STL"]

[[expect.profile]]
says = "each lane of a load of keys reads another row: nine sectors per load, queries included"
check = "metric('ld_sectors_per_request') > 8"
+++*/
