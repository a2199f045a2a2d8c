/*+++
title = "Hillis and Steele"
idea = """\
One thread per element. In ten steps each adds what lies 1, 2, 4, ... 512 places before it, in two \
buffers of shared memory by turns: ten additions per element where one would do. A second launch \
scans the blocks' sums, and a third reads every result again to add the sum before its block."""
kind = "step"
compared_with = ""
+++*/

#include "scan/scan_warp.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_hillis_steele_1(const Elem* __restrict__ x, Elem* __restrict__ y, Elem* __restrict__ sums, long long n) {
    __shared__ Elem buffer[2][BLOCK];
    const int tid = threadIdx.x;
    const long long i = (long long)blockIdx.x * BLOCK + tid;
    int now = 0;
    buffer[now][tid] = i < n ? x[i] : 0;
    __syncthreads();
    for (int offset = 1; offset < BLOCK; offset *= 2) {
        Elem v = buffer[now][tid];
        if (tid >= offset) v += buffer[now][tid - offset];
        now = 1 - now;
        buffer[now][tid] = v;
        __syncthreads();
    }
    if (i < n) y[i] = buffer[now][tid];
    if (tid == BLOCK - 1) sums[blockIdx.x] = buffer[now][tid];
}

extern "C" __global__ void __launch_bounds__(1024)
scan_hillis_steele_2(Elem* __restrict__ sums, long long n) { scan_sums<1024>(sums, ceil_div(n, (long long)BLOCK)); }

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_hillis_steele_3(Elem* __restrict__ y, const Elem* __restrict__ sums, long long n) {
    const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] += sums[blockIdx.x];
}

/*+++
minimum_cc = "8.0"

[source]
document = "W. D. Hillis and G. L. Steele, Data Parallel Algorithms"

[parameters]
BLOCK = 1024

[search]
BLOCK = [256, 512, 1024]

[[launch]]
kernel = "scan_hillis_steele_1"
grid = ["ceil_div(n, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "sums", "n"]

[[launch]]
kernel = "scan_hillis_steele_2"
grid = ["1", "1", "1"]
block = ["1024", "1", "1"]
shared = "0"
args = ["sums", "n"]

[[launch]]
kernel = "scan_hillis_steele_3"
grid = ["ceil_div(n, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["y", "sums", "n"]

[scratch.sums]
dtype = "int32"
count = "ceil_div(n, BLOCK)"
zeroed = false

[expect.sass]
present = ["LDG.E", "STG.E", "STS", "LDS", "BAR.SYNC"]
absent = ["LDL", "STL"]
+++*/
