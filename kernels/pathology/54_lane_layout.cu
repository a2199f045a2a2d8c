/*+++
title = "How a block's threads map to lanes"
idea = """\
The threads of a two-dimensional block are numbered along x first, and 32 consecutive numbers \
make a warp. Each thread writes its lane. Shuffles also give it the threads one lane up, one \
block row up, and at the lane with the lowest bit flipped. At the end of the warp a shuffle \
returns the thread's own value."""
kind = "probe"
+++*/

#include "pathology/pathology.cuh"

// y[0]: the lane; y[1..3]: thread x + 256 * thread y of the lane 1 up, X up, and with the lowest bit flipped.
extern "C" __global__ void __launch_bounds__(X * Y)
lane_layout(int* __restrict__ y, int count) {
    int lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    const int self = threadIdx.x + 256 * threadIdx.y;
    const int i = blockIdx.x * (X * Y) + threadIdx.y * X + threadIdx.x;  // count is a whole number of blocks
    y[i] = lane;
    y[count + i] = __shfl_down_sync(0xffffffffu, self, 1);
    y[2 * count + i] = __shfl_down_sync(0xffffffffu, self, X);
    y[3 * count + i] = __shfl_xor_sync(0xffffffffu, self, 1);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "lane_layout"
x = 8
y = 8

[parameters]
X = 8
Y = 8

[[launch]]
kernel = "lane_layout"
grid = ["count / (X * Y)", "1", "1"]
block = ["X", "Y", "1"]
shared = "0"
args = ["y", "count"]

[expect.sass]
present = ["SHFL.DOWN", "SHFL.BFLY"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "three shuffles per thread"
check = "executed('SHFL') == 3 * n / 32"
+++*/
