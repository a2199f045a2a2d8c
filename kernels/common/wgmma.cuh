// Warpgroup matrix instructions (sm_90a): 128 threads multiply tiles that lie in shared memory, asynchronously.
#pragma once

#include "common/cp_async.cuh"  // shared_address
#include "common/elem16.cuh"

// Describes a tile in shared memory to wgmma: rows of 64 elements (128 bytes) along k, as TMA's 128-byte swizzle leaves them, starting at
// a multiple of 1024 bytes. Fields count 16 bytes: start address (bits 0-13), leading offset (16-29, unused with this swizzle), stride
// offset (32-45) from one swizzle atom of 8 rows to the next, 1024 bytes; bits 62-63 = 1 name the 128-byte swizzle. The next 16 elements
// along k lie 32 bytes further: the hardware swizzles address bits, so an offset within the row may simply be added to the start.
__device__ __forceinline__ unsigned long long wgmma_tile(const void* tile) {
    const unsigned long long start = (shared_address(tile) & 0x3FFFF) >> 4;
    return start | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}
#define WGMMA_K16_STEP 2ull  // 32 bytes along k in descriptor units

// Orders accesses to the accumulator registers (and earlier wgmmas) before the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes the group of wgmmas since the last commit.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most PENDING groups are in flight: the tiles of the others have been read and, at 0, the accumulators are complete.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

// Hands registers back to the block: a producer needs few.
template <int REGISTERS>
__device__ __forceinline__ void release_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(REGISTERS));
}

// Takes registers from those handed back; waits until there are enough.
template <int REGISTERS>
__device__ __forceinline__ void claim_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(REGISTERS));
}

// The accumulator layout, for each N: thread t of the warpgroup holds, of the 16-row band t / 32, row (t % 32) / 4 in d[4 * j] and
// d[4 * j + 1], at columns 8 * j + 2 * (t % 4) and + 1, and the row eight below in d[4 * j + 2] and d[4 * j + 3].
#define ACCUMULATORS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACCUMULATORS_16(d, i) ACCUMULATORS_4(d, i), ACCUMULATORS_4(d, i + 4), ACCUMULATORS_4(d, i + 8), ACCUMULATORS_4(d, i + 12)

// d (64 x 128, fp32) = a (64 x 16) * b (16 x 128) + (accumulate ? d : 0).
__device__ __forceinline__ void wgmma_k16(float (&d)[64], unsigned long long a, unsigned long long b, bool accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." ELEM16_PTX "." ELEM16_PTX " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, 0, 0;\n}"
        : ACCUMULATORS_16(d, 0),
          ACCUMULATORS_16(d, 16),
          ACCUMULATORS_16(d, 32),
          ACCUMULATORS_16(d, 48)
        : "l"(a), "l"(b), "r"((int)accumulate));
}

// d (64 x 256, fp32) = a (64 x 16) * b (16 x 256) + (accumulate ? d : 0).
__device__ __forceinline__ void wgmma_k16(float (&d)[128], unsigned long long a, unsigned long long b, bool accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32." ELEM16_PTX "." ELEM16_PTX " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, p, 1, 1, 0, 0;\n}"
        : ACCUMULATORS_16(d, 0),
          ACCUMULATORS_16(d, 16),
          ACCUMULATORS_16(d, 32),
          ACCUMULATORS_16(d, 48),
          ACCUMULATORS_16(d, 64),
          ACCUMULATORS_16(d, 80),
          ACCUMULATORS_16(d, 96),
          ACCUMULATORS_16(d, 112)
        : "l"(a), "l"(b), "r"((int)accumulate));
}

#undef ACCUMULATORS_4
#undef ACCUMULATORS_16

// Four 8 x 8 matrices to shared memory in one instruction: lane l addresses row l % 8 of matrix l / 8, and gives elements 2 * (l % 4) and + 1
// of row l / 4 of each matrix, which is how accumulators lie once they are rounded in pairs.
__device__ __forceinline__ void stmatrix_x4(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Stores a warpgroup's 64-row accumulator at (row0, col0) of C straight from registers, rounded and guarded.
template <int COUNT>
__device__ __forceinline__ void store_accumulators(elem16* C, const float (&d)[COUNT], int row0, int col0, int M, int N) {
    const int lane = threadIdx.x % 32, band = threadIdx.x / 32 % 4;
    const bool aligned = N % 2 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = row0 + band * 16 + half * 8 + lane / 4;
        if (row >= M) continue;
#pragma unroll
        for (int j = 0; j < COUNT / 4; ++j) {
            const int col = col0 + j * 8 + lane % 4 * 2;
            store_pair_guarded(C + (size_t)row * N + col, d[j * 4 + half * 2], d[j * 4 + half * 2 + 1], N - col, aligned);
        }
    }
}
