/*+++
title = "GELU in one kernel"
idea = """\
All eight operations in one launch: x is read once, y written once, and everything between stays \
in registers. Compulsory traffic only, a ninth of what the separate launches move."""
kind = "step"
compared_with = "gelu_unfused"
removes = "launch-overhead"
+++*/

#include "common/gelu.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_fused(const float* __restrict__ x, float* __restrict__ y, long long count) {
    const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) y[i] = gelu_tanh(x[i]);
}

/*+++
minimum_cc = "8.0"

[problem]
op = "gelu"

[source]
document = "Fused GELU example"
claim = "17 us at 1024 x 1024; the library 13.3 us"
device = "not stated"

[parameters]
BLOCK = 256

[search]
BLOCK = [128, 256, 512, 1024]

[[launch]]
kernel = "gelu_fused"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E", "STG.E", "MUFU.EX2"]
absent = ["LDG.E.128", "LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "x is read once and y written once, so traffic is close to compulsory"
check = "metric('dram_bytes') < 1.1 * 8 * rows * cols"
sizes = ["16384"]

[[expect.profile]]
says = "one load and one store per warp"
check = "executed('LDG') == executed('STG')"
+++*/
