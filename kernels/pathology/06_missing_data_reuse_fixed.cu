/*+++
title = "A tile in shared memory, a window in registers"
idea = """\
The block fetches its piece of the input once into shared memory, and each thread slides a window \
of eight values along it for four results, so that a value fetched serves four sums. The additions \
are the same."""
kind = "step"
compared_with = "missing_data_reuse"
removes = "missing-data-reuse"
+++*/

#include "pathology/pathology.cuh"

#define OUTPUTS (4 * BLOCK)        // a block's results, four a thread
#define TILE (OUTPUTS + TAPS - 1)  // and the inputs they need

extern "C" __global__ void __launch_bounds__(BLOCK)
missing_data_reuse_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
    __shared__ __align__(16) float tile[TILE + 1];
    const int first = blockIdx.x * OUTPUTS;
    for (int j = threadIdx.x; j <= TILE; j += BLOCK) tile[j] = j < TILE && first + j < count + TAPS - 1 ? x[first + j] : 0.f;
    __syncthreads();

    const float* mine = tile + 4 * threadIdx.x;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    float4 a = load_float4(mine);
#pragma unroll 4
    for (int t = 0; t < TAPS; t += 4) {
        const float4 b = load_float4(mine + t + 4);
        sum.x = sum.x + a.x + a.y + a.z + a.w;
        sum.y = sum.y + a.y + a.z + a.w + b.x;
        sum.z = sum.z + a.z + a.w + b.x + b.y;
        sum.w = sum.w + a.w + b.x + b.y + b.z;
        a = b;
    }
    const float f = 1.f / TAPS;
    const int i = first + 4 * threadIdx.x;
    store_float4_guarded(y + i, make_float4(sum.x * f, sum.y * f, sum.z * f, sum.w * f), count - i, true);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "moving_mean"
taps = 64

[parameters]
BLOCK = 256
TAPS = 64

[[launch]]
kernel = "missing_data_reuse_fixed"
grid = ["ceil_div(count, 4 * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 1.8

[expect.sass]
present = ["LDS.128", "STG.E.128", "FADD"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the input is fetched about once"
check = "executed('LDG') < 0.05 * prev_executed('LDG')"

[[expect.profile]]
says = "the traffic through the L1 falls with it"
check = "metric('l1_global_bytes') < 0.2 * prev_metric('l1_global_bytes')"
+++*/
