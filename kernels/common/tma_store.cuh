// Tiles that leave shared memory by TMA, and the barriers of those that write them.
#pragma once

#include "common/tma.cuh"
#include "common/wgmma.cuh"

// Copies a tile from shared memory to the map's box at element (x, y), without what lies outside of the matrix. One thread starts it, after
// async_proxy_fence of those that wrote the tile, and closes groups of such copies with bulk_store_commit.
__device__ __forceinline__ void tma_store(const CUtensorMap* map, const void* src, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(map), "r"(x), "r"(y), "r"(shared_address(src)) : "memory");
}

__device__ __forceinline__ void bulk_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but PENDING of this thread's groups have read their shared memory, which may then be written again.
template <int PENDING>
__device__ __forceinline__ void bulk_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory");
}

// Makes this thread's writes to shared memory visible to copies that are started afterwards.
__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Fetches a map that is used only later: its first copy then does not wait for it.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

// Hardware barrier `id` (0 is __syncthreads) of `threads` threads: some arrive and go on, the others wait for all.
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// stmatrix_x4 with each matrix transposed: lane l addresses column l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4_transposed(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
