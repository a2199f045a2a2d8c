/*+++
title = "Device copy"
idea = """\
Reads and writes every byte once, 16 of them per thread, and leaves it to the number of threads to \
keep enough bytes in flight: the cost of a transpose without the transposition."""
kind = "roof"
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
copy(const float* __restrict__ x, float* __restrict__ y, long long count) {
    const long long i = 4 * ((long long)blockIdx.x * BLOCK + threadIdx.x);
    const int remaining = (int)min(4LL, count - i);
    const bool vector = is_aligned_16(x) && is_aligned_16(y);
    store_float4_guarded(y + i, load_float4_guarded(x + i, remaining, vector), remaining, vector);
}

/*+++
minimum_cc = "8.0"

[problem]
op = "copy"

[source]
document = "The roof of every memory-bound ladder"

[parameters]
BLOCK = 256

[search]
BLOCK = [128, 256, 512, 1024]

[[launch]]
kernel = "copy"
grid = ["ceil_div(rows * cols, 4 * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E.128", "STG.E.128"]
absent = ["LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.75"
sizes = ["16384"]
+++*/
