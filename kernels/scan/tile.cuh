// A tile of a scan in registers: BLOCK threads with VECTORS quartets each. A warp holds 128 * VECTORS neighbouring elements, and its vector k
// is a run of 128 of them, so that every load and store is one piece of 512 bytes and nothing has to be turned around in shared memory.
#pragma once

#include "scan/scan_warp.cuh"

#define TILE (BLOCK * VECTORS * 4)
#define WARPS (BLOCK / WARP_SIZE)

// Turns a warp's run of 128 elements into inclusive sums that begin with `before`, which becomes the sum up to the end of the run.
__device__ __forceinline__ void scan_run(Elem4& v, Elem& before) {
    v.y += v.x;
    v.z += v.y;
    v.w += v.z;
    const Elem upto = scan_warp(v.w), add = before + upto - v.w;
    before += __shfl_sync(0xffffffffu, upto, WARP_SIZE - 1);
    v.x += add;
    v.y += add;
    v.z += add;
    v.w += add;
}

struct Tile {
    Elem4 v[VECTORS];

    __device__ static long long place(long long first, int k) {
        const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
        return first + (warp * VECTORS + k) * (4 * WARP_SIZE) + 4 * lane;
    }

    // x and y are 16-byte aligned, as every allocation is; i is a multiple of 4. What lies behind the end is zero.
    __device__ static Elem4 load_vector(const Elem* x, long long i, long long n) {
        if (i + 4 <= n) return *reinterpret_cast<const Elem4*>(x + i);
        return {i < n ? x[i] : 0, i + 1 < n ? x[i + 1] : 0, i + 2 < n ? x[i + 2] : 0, 0};
    }

    __device__ void load(const Elem* x, long long first, long long n) {
        if (first + TILE <= n) {
            #pragma unroll
            for (int k = 0; k < VECTORS; ++k) v[k] = *reinterpret_cast<const Elem4*>(x + place(first, k));
        } else {
            #pragma unroll
            for (int k = 0; k < VECTORS; ++k) v[k] = load_vector(x, place(first, k), n);
        }
    }

    __device__ static void store_vector(Elem* y, long long i, long long n, Elem4 v) {
        if (i + 4 <= n) {
            // An assignment would be taken apart and merged with those below.
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(y + i), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
        } else {
            if (i < n) y[i] = v.x;
            if (i + 1 < n) y[i + 1] = v.y;
            if (i + 2 < n) y[i + 2] = v.z;
        }
    }

    // Stores the elements with `before` added to each.
    __device__ void store(Elem* y, long long first, long long n, Elem before) const {
        #pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            const Elem4 sum = {v[k].x + before, v[k].y + before, v[k].z + before, v[k].w + before};
            store_vector(y, place(first, k), n, sum);
        }
    }

    // The sum of the warp's elements, in all lanes.
    __device__ Elem sum() const {
        Elem mine = 0;
        #pragma unroll
        for (int k = 0; k < VECTORS; ++k) mine += (v[k].x + v[k].y) + (v[k].z + v[k].w);
        return __reduce_add_sync(0xffffffffu, mine);
    }

    // Turns the warp's elements into inclusive sums within the warp; returns their sum, in all lanes.
    __device__ Elem scan() {
        Elem upto = 0;
        #pragma unroll
        for (int k = 0; k < VECTORS; ++k) scan_run(v[k], upto);
        return upto;
    }
};

// From each warp's sum: what lies before this thread's warp in the block, and the block's sum. of_warp must not be written before a barrier.
__device__ __forceinline__ void meet(Elem of_this_warp, Elem (&of_warp)[WARPS], Elem& before, Elem& all) {
    const int warp = threadIdx.x / WARP_SIZE;
    if (threadIdx.x % WARP_SIZE == 0) of_warp[warp] = of_this_warp;
    __syncthreads();
    before = all = 0;
    #pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        if (w == warp) before = all;
        all += of_warp[w];
    }
}
