/*+++
title = "Rows of a table that the L2 holds"
idea = """\
Sums of random rows of an 8 MiB table: too large for an L1, small enough for the L2. Each row is \
used as soon as it arrives and no SM reads the same row twice in a while, so the L2 has to deliver \
every byte."""
kind = "roof"
+++*/

#include "pathology/pathology.cuh"

// y[b] = sum of the LOOKUPS rows of the table that bag b names. A warp works on a bag; each group of eight lanes reads whole rows of
// 32 floats, 16 bytes a lane, so that a request of the warp is four rows of 128 bytes.
extern "C" __global__ void __launch_bounds__(BLOCK)
l2_bandwidth(const float* __restrict__ table, const int* __restrict__ index, float* __restrict__ y, int bags) {
    const int lane = threadIdx.x % 32, group = lane / 8, bag = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (bag >= bags) return;
    const int4* __restrict__ names = reinterpret_cast<const int4*>(index + (size_t)bag * LOOKUPS + group * (LOOKUPS / 4));
    const float4* __restrict__ rows = reinterpret_cast<const float4*>(table) + lane % 8;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    const auto add = [&](int row) {
        const float4 v = __ldcg(rows + row * 8);
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    };
#pragma unroll 2
    for (int j = 0; j < LOOKUPS / 16; ++j) {
        const int4 q = __ldg(names + j);
        add(q.x);
        add(q.y);
        add(q.z);
        add(q.w);
    }
#pragma unroll
    for (int d = 8; d < 32; d *= 2) {  // lanes eight apart hold the same columns
        sum.x += __shfl_xor_sync(0xffffffffu, sum.x, d);
        sum.y += __shfl_xor_sync(0xffffffffu, sum.y, d);
        sum.z += __shfl_xor_sync(0xffffffffu, sum.z, d);
        sum.w += __shfl_xor_sync(0xffffffffu, sum.w, d);
    }
    if (group == 0) store_float4(y + (size_t)bag * 32 + lane * 4, sum);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "embedding_bag"
table_rows = 65536
lookups = 32
divide = 64

[parameters]
BLOCK = 256
LOOKUPS = 32

[[launch]]
kernel = "l2_bandwidth"
grid = ["ceil_div(bags, BLOCK / 32)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["table", "index", "y", "bags"]

[expect.sass]
present = ["LDG.E.128", "SHFL"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the L2 delivers far more than the device memory"
check = "metric('l2_bytes') > 5 * metric('dram_bytes')"

[[expect.profile]]
says = "whole rows are read"
check = "executed('LDG.E.128') > 0.9 * executed('LDG')"
+++*/
