/*+++
title = "The row in registers"
idea = """\
A row is spread over as many threads as hold it in registers, a few 16-byte vectors each: two \
warps for a thousand elements, 32 for 32 thousand. It is read once, in loads that are all under \
way together; all else happens in registers until it is written once."""
kind = "step"
compared_with = "softmax_online"
+++*/

#include "softmax/reduce_row.cuh"

// A limit of registers and not of threads: 32 warps for a row of 32 thousand, and 40 resident ones where rows are shorter.
extern "C" __global__ void __maxnreg__(REGISTERS)
softmax_registers(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float of_warp[2][WARP_SIZE];
    const int tid = threadIdx.x, threads = blockDim.x, warps = threads / WARP_SIZE;
    x += (long long)blockIdx.x * cols;
    y += (long long)blockIdx.x * cols;
    // Elements from `held` on are read anew each time: all of a row that cannot be read 16 bytes at a time, and the end of a very long one.
    const int held = is_aligned_16(x) && is_aligned_16(y) && cols % 4 == 0 ? min(cols, 4 * VECTORS * threads) : 0;

    float4 v[VECTORS];
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        const int i = 4 * (k * threads + tid);
        v[k] = i < held ? load_float4(x + i) : make_float4(LOWEST, LOWEST, LOWEST, LOWEST);
    }
    float largest = LOWEST;
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) largest = fmaxf(largest, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
    for (int i = held + tid; i < cols; i += threads) largest = fmaxf(largest, x[i]);
    largest = across_block<Larger>(largest, of_warp[0], warps);

    float sum = 0.f;
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        if (4 * k * threads >= held) break;  // for all threads alike
        v[k] = make_float4(__expf(v[k].x - largest), __expf(v[k].y - largest), __expf(v[k].z - largest), __expf(v[k].w - largest));
        sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    for (int i = held + tid; i < cols; i += threads) sum += __expf(x[i] - largest);
    const float scale = 1.f / across_block<Total>(sum, of_warp[1], warps);

    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        const int i = 4 * (k * threads + tid);
        if (i < held) store_float4(y + i, make_float4(v[k].x * scale, v[k].y * scale, v[k].z * scale, v[k].w * scale));
    }
    for (int i = held + tid; i < cols; i += threads) y[i] = __expf(x[i] - largest) * scale;
}

/*+++
minimum_cc = "8.0"

[source]
document = "Beyond the paper: one read and one write of device memory"

[parameters]
VECTORS = 8               # of 16 bytes, that a thread can hold
FILL = 4                  # that it does hold while a block has threads enough
REGISTERS = 64            # a thread

[search]
VECTORS = [4, 8]
FILL = [1, 2, 4, 8]
REGISTERS = [48, 56, 64]
[[constraint]]
check = "FILL <= VECTORS"
says = "a thread holds at most VECTORS"

[[launch]]
kernel = "softmax_registers"
grid = ["rows", "1", "1"]
block = ["min(1024, 32 * ceil_div(cols, 128 * FILL))", "1", "1"]
shared = "0"
args = ["x", "y", "cols"]

[expect.sass]
present = ["LDG.E.128", "STG.E.128", "MUFU.EX2", "SHFL.BFLY"]
absent = ["LDL", "STL"]
max_registers = 64

[[expect.profile]]
says = "every load is 16 bytes wide"
check = "executed('LDG.E.128') == executed('LDG')"

[[expect.profile]]
says = "one read and one write of the array pass through the L1, not two reads and a write"
check = "metric('l1_global_bytes') < 0.7 * prev_metric('l1_global_bytes')"

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.75"
+++*/
