/*+++
title = "RGB to gray, 16 pixels per thread"
idea = """\
A warp copies 512 pixels, 1536 bytes, to shared memory in 16-byte loads of neighbouring lanes; \
each lane then picks up its own 16 pixels, 48 bytes, and stores 16 gray bytes at once. Neither \
side of the copy through shared memory has a bank conflict, and only lanes of one warp meet, so no \
block-wide barrier is needed."""
kind = "step"
compared_with = "rgb_to_gray"
removes = "narrow-access"
+++*/

#include "common/gray.cuh"

#define PIXELS (16 * WARP_SIZE)  // of one warp

extern "C" __global__ void __launch_bounds__(BLOCK)
rgb_to_gray_vectorized(const unsigned char* __restrict__ rgb, unsigned char* __restrict__ gray, long long count) {
    __shared__ uint4 staged[BLOCK / WARP_SIZE][3 * WARP_SIZE];
    const int warp = threadIdx.x / WARP_SIZE;
    const int lane = threadIdx.x % WARP_SIZE;
    const long long first = ((long long)blockIdx.x * (BLOCK / WARP_SIZE) + warp) * PIXELS;

    if (first + PIXELS <= count && is_aligned_16(rgb) && is_aligned_16(gray)) {
        const uint4* const in = reinterpret_cast<const uint4*>(rgb + 3 * first) + lane;
        uint4* const mine = staged[warp];
        const uint4 first_third = in[0], second_third = in[WARP_SIZE], last_third = in[2 * WARP_SIZE];
        mine[lane] = first_third;
        mine[WARP_SIZE + lane] = second_third;
        mine[2 * WARP_SIZE + lane] = last_third;
        __syncwarp();
        // 48 bytes apart, eight neighbouring lanes still reach all 32 banks once: 3 and 8 have no common factor.
        const uint4 a = mine[3 * lane], b = mine[3 * lane + 1], c = mine[3 * lane + 2];
        const uint4 out = make_uint4(luma4(a.x, a.y, a.z), luma4(a.w, b.x, b.y), luma4(b.z, b.w, c.x), luma4(c.y, c.z, c.w));
        reinterpret_cast<uint4*>(gray + first)[lane] = out;
        return;
    }
    // The warp that the end of the image cuts: one pixel at a time.
    for (long long i = first + lane; i < first + PIXELS && i < count; i += WARP_SIZE) gray[i] = luma(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
}

/*+++
minimum_cc = "8.0"
baseline = "cupy_rgb_to_gray"

[problem]
op = "rgb_to_gray"

[source]
document = "Beyond the document: vector accesses"

[parameters]
BLOCK = 256

[search]
BLOCK = [64, 128, 256, 512]

[[launch]]
kernel = "rgb_to_gray_vectorized"
grid = ["ceil_div(rows * cols, 16 * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["rgb", "gray", "count"]

[expect.sass]
present = ["LDG.E.128", "STS.128", "LDS.128", "STG.E.128", "IDP.4A"]
absent = ["BAR.SYNC", "LDL", "STL"]

[[expect.profile]]
says = "all loads and stores are 128 bits wide, a sixteenth as many as before"
check = "executed('LDG.E.128') == executed('LDG') and executed('LDG') < 0.07 * prev_executed('LDG')"

[[expect.profile]]
says = "shared memory has no bank conflicts"
check = "metric('shared_conflict_excess') < 0.02"

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.75"
sizes = ["16384"]
+++*/
