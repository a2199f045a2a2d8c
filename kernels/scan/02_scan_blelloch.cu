/*+++
title = "Blelloch's tree"
idea = """\
Sums go up a tree and prefixes come down it: two additions per element instead of ten. But each \
level takes places twice as far apart as the one before, so more and more lanes of a warp meet in \
one bank of shared memory, and most warps only wait at the 20 barriers."""
kind = "step"
compared_with = "scan_hillis_steele"
+++*/

// Element i lies at place i: elements 32, 64, ... apart share a bank.
#define PLACE(i) (i)
#include "scan/tree.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_blelloch_1(const Elem* __restrict__ x, Elem* __restrict__ y, Elem* __restrict__ sums, long long n) { scan_tree(x, y, sums, n); }

extern "C" __global__ void __launch_bounds__(1024)
scan_blelloch_2(Elem* __restrict__ sums, long long n) { scan_sums<1024>(sums, ceil_div(n, 2LL * BLOCK)); }

extern "C" __global__ void __launch_bounds__(BLOCK)
scan_blelloch_3(Elem* __restrict__ y, const Elem* __restrict__ sums, long long n) { add_before(y, sums, n); }

/*+++
minimum_cc = "8.0"

[source]
document = "G. E. Blelloch, Prefix Sums and Their Applications"

[parameters]
BLOCK = 512               # threads, two elements each

[search]
BLOCK = [128, 256, 512, 1024]

[[launch]]
kernel = "scan_blelloch_1"
grid = ["ceil_div(n, 2 * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "sums", "n"]

[[launch]]
kernel = "scan_blelloch_2"
grid = ["1", "1", "1"]
block = ["1024", "1", "1"]
shared = "0"
args = ["sums", "n"]

[[launch]]
kernel = "scan_blelloch_3"
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
says = "most of the shared-memory wavefronts come from bank conflicts"
check = "metric('shared_conflict_excess') > 0.5"

[[measured]]
gpu = "NVIDIA H200"
says = "Slower than the scan of Hillis and Steele, 3508 us against 2781 us at 2^28: a fifth of the additions, but twice the barriers, and bank conflicts, which scan_padded takes away (2299 us)."
+++*/
