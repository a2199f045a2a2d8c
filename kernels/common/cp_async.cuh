// cp.async (LDGSTS): global memory straight into shared memory, without a stop in registers. Compute capability 8.0 and later.
//
// None of the copies clobbers "memory": whoever issues one has passed a barrier after the last read of the destination, and reads it
// only behind cp_async_wait and a barrier. Both of those do order memory, so the compiler may move copies among the arithmetic between.
#pragma once

// The 32-bit shared-window address that the copies take; kept by the caller so that generic-to-shared conversion is done once.
__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// 16 bytes; .cg skips the L1, which would only hold a second copy of what goes to shared memory.
__device__ __forceinline__ void cp_async_16(unsigned dst, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(dst), "l"(src));
}

// 16 bytes of which the first `valid` (0..16) are read and the rest written as zero: an edge without a branch or a read out of bounds.
__device__ __forceinline__ void cp_async_16_zfill(unsigned dst, const void* src, int valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(dst), "l"(src), "r"(valid));
}

// 4 bytes, for rows that are not 16-byte aligned; .cg exists for 16 bytes only, and here the L1 does serve the neighbours of a sector.
__device__ __forceinline__ void cp_async_4(unsigned dst, const void* src) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(dst), "l"(src));
}

// 4 bytes, or a zero where `valid` is 0.
__device__ __forceinline__ void cp_async_4_zfill(unsigned dst, const void* src, int valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(dst), "l"(src), "r"(valid));
}

// Closes the group of copies issued since the last commit. An empty group counts too, which keeps cp_async_wait's count the same
// in iterations that have nothing left to copy.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;");
}

// Waits until at most PENDING of this thread's youngest groups are in flight. It says nothing of other threads' copies: a barrier
// has to follow before their part of a tile is read. The clobber keeps shared reads from moving ahead of the wait.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}
