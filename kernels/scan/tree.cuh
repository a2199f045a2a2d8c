// Blelloch's scan of the 2 * BLOCK elements of a block in shared memory. The rung defines PLACE(i): where element i lies.
#pragma once

#include "scan/scan_warp.cuh"

// Inclusive sums of the block's elements of x to y, and their sum to sums[blockIdx.x].
__device__ __forceinline__ void scan_tree(const Elem* __restrict__ x, Elem* __restrict__ y, Elem* __restrict__ sums, long long n) {
    __shared__ Elem tree[PLACE(2 * BLOCK - 1) + 1];
    const int tid = threadIdx.x;
    const long long i = (long long)blockIdx.x * (2 * BLOCK) + tid;
    const Elem low = i < n ? x[i] : 0, high = i + BLOCK < n ? x[i + BLOCK] : 0;
    tree[PLACE(tid)] = low;
    tree[PLACE(tid + BLOCK)] = high;

    // Up: each node becomes the sum of its two children, the right one of which gives its place.
    int reach = 1;
    for (int nodes = BLOCK; nodes > 0; nodes /= 2, reach *= 2) {
        __syncthreads();
        if (tid < nodes) {
            const int right = reach * (2 * tid + 2) - 1;
            tree[PLACE(right)] += tree[PLACE(right - reach)];
        }
    }
    __syncthreads();
    if (tid == 0) {
        sums[blockIdx.x] = tree[PLACE(2 * BLOCK - 1)];
        tree[PLACE(2 * BLOCK - 1)] = 0;
    }
    // Down: a node holds the sum of all before it. Its left child takes that, its right child that and the left child's sum.
    for (int nodes = 1; nodes <= BLOCK; nodes *= 2) {
        reach /= 2;
        __syncthreads();
        if (tid < nodes) {
            const int right = reach * (2 * tid + 2) - 1;
            const Elem before = tree[PLACE(right)], left = tree[PLACE(right - reach)];
            tree[PLACE(right - reach)] = before;
            tree[PLACE(right)] = before + left;
        }
    }
    __syncthreads();
    if (i < n) y[i] = tree[PLACE(tid)] + low;
    if (i + BLOCK < n) y[i + BLOCK] = tree[PLACE(tid + BLOCK)] + high;
}

// Adds what lies before the block to its results.
__device__ __forceinline__ void add_before(Elem* __restrict__ y, const Elem* __restrict__ sums, long long n) {
    const long long i = (long long)blockIdx.x * (2 * BLOCK) + threadIdx.x;
    const Elem before = sums[blockIdx.x];
    if (i < n) y[i] += before;
    if (i + BLOCK < n) y[i + BLOCK] += before;
}
