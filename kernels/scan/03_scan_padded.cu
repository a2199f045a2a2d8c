/*+++
title = "The tree without bank conflicts"
idea = """\
The same tree with one word of padding after every 32. Places a power of two apart then fall into \
different banks at nearly all levels."""
kind = "step"
compared_with = "scan_blelloch"
removes = "shared-bank-conflict"
+++*/

// One free place after every 32: elements 32, 64, ... apart then lie in different banks.
#define PLACE(i) ((i) + (i) / WARP_SIZE)
#include "scan/tree.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_padded_1(const Elem* __restrict__ x, Elem* __restrict__ y, Elem* __restrict__ sums, long long n) { scan_tree(x, y, sums, n); }

extern "C" __global__ void __launch_bounds__(1024)
scan_padded_2(Elem* __restrict__ sums, long long n) { scan_sums<1024>(sums, ceil_div(n, 2LL * BLOCK)); }

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_padded_3(Elem* __restrict__ y, const Elem* __restrict__ sums, long long n) { add_before(y, sums, n); }

/*+++
minimum_cc = "8.0"

[source]
document = "M. Harris, S. Sengupta and J. D. Owens, Parallel Prefix Sum (Scan) with CUDA"

[parameters]
BLOCK = 512               # threads, two elements each

[search]
BLOCK = [128, 256, 512, 1024]

[[launch]]
kernel = "scan_padded_1"
grid = ["ceil_div(n, 2 * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "sums", "n"]

[[launch]]
kernel = "scan_padded_2"
grid = ["1", "1", "1"]
block = ["1024", "1", "1"]
shared = "0"
args = ["sums", "n"]

[[launch]]
kernel = "scan_padded_3"
grid = ["ceil_div(n, 2 * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["y", "sums", "n"]

[scratch.sums]
dtype = "int32"
count = "ceil_div(n, 2 * BLOCK)"
zeroed = false

[expect.sass]
present = ["LDG.E", "STG.E", "STS", "LDS", "BAR.SYNC"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "hardly a bank conflict is left"
check = "metric('shared_conflict_excess') < 0.3 * prev_metric('shared_conflict_excess')"
+++*/
