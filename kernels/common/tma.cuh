// The tensor memory accelerator (sm_90 and later): one thread starts the copy of a whole tile, edges and swizzle included.
#pragma once

#include <cuda.h>  // CUtensorMap, a 128-byte descriptor made by the host and passed as a const __grid_constant__ parameter

#include "common/mbarrier.cuh"

// Fetches the descriptor ahead of its first use.
__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

// Copies the map's box at element (x, y), x along rows, to shared memory and credits its bytes to `bar`. What lies outside of
// the matrix arrives as zeros, and counts as bytes too.
__device__ __forceinline__ void tma_load(void* dst, const CUtensorMap* map, int x, int y, mbarrier* bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(shared_address(dst)), "l"(map), "r"(x), "r"(y), "r"(shared_address(bar)) : "memory");
}

// The same into all blocks of the cluster whose bit is set in `blocks`, at the same offsets of tile and barrier in each:
// a tile that several blocks need is read from the L2 once.
__device__ __forceinline__ void tma_load_multicast(void* dst, const CUtensorMap* map, int x, int y, mbarrier* bar, unsigned short blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(shared_address(dst)), "l"(map), "r"(x), "r"(y), "r"(shared_address(bar)), "h"(blocks) : "memory");
}

// Copies consecutive bytes from global to shared memory and credits them to `bar`; addresses and size are multiples of 16. It needs no map.
__device__ __forceinline__ void bulk_load(void* dst, const void* src, unsigned bytes, mbarrier* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(shared_address(dst)), "l"(src), "r"(bytes), "r"(shared_address(bar)) : "memory");
}
