// Warpgroup matrix instructions for attention: with 64 columns, and with the left operand in registers and n along rows of the right one.
#pragma once

#include "common/wgmma.cuh"

// Describes a tile of `rows` x 64 x COLUMNS / 64 elements to wgmma as its right operand, k down the rows and n along them (trans-b = 1).
// A part of 64 columns is rows of 128 bytes, as TMA's 128-byte swizzle leaves them, from a multiple of 1024 bytes; the parts follow each
// other. Fields count 16 bytes: start address (bits 0-13), leading offset (16-29) from one part of 64 columns to the next, stride offset
// (32-45) from eight rows to the next eight; bits 62-63 = 1 name the 128-byte swizzle.
template <int HEIGHT>
__device__ __forceinline__ unsigned long long wgmma_tile_across(const void* tile) {
    const unsigned long long start = (shared_address(tile) & 0x3FFFF) >> 4;
    return start | (HEIGHT * 128ull >> 4) << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}
#define WGMMA_K16_ROWS 128ull  // 16 rows of 128 bytes in descriptor units

// The left operand's layout is the accumulators', rounded in pairs: thread t of the warpgroup holds, of the 16-row band t / 32 and 16 values
// along k, row (t % 32) / 4 in a[0] (k = 2 * (t % 4) and + 1) and a[2] (k + 8), and the row eight below in a[1] and a[3].
#define ACCUMULATORS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACCUMULATORS_16(d, i) ACCUMULATORS_4(d, i), ACCUMULATORS_4(d, i + 4), ACCUMULATORS_4(d, i + 8), ACCUMULATORS_4(d, i + 12)

// d (64 x 64, fp32) = a (64 x 16) * b (16 x 64) + (accumulate ? d : 0), both operands in shared memory as in common/wgmma.cuh.
__device__ __forceinline__ void wgmma_k16(float (&d)[32], unsigned long long a, unsigned long long b, bool accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." ELEM16_PTX "." ELEM16_PTX " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p, 1, 1, 0, 0;\n}"
        : ACCUMULATORS_16(d, 0), ACCUMULATORS_16(d, 16)
        : "l"(a), "l"(b), "r"((int)accumulate));
}

// d (64 x 64, fp32) += a (64 x 16, registers) * b (16 x 64).
__device__ __forceinline__ void wgmma_k16_registers(float (&d)[32], const unsigned* a, unsigned long long b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." ELEM16_PTX "." ELEM16_PTX " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
        : ACCUMULATORS_16(d, 0), ACCUMULATORS_16(d, 16)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// d (64 x 128, fp32) += a (64 x 16, registers) * b (16 x 128).
__device__ __forceinline__ void wgmma_k16_registers(float (&d)[64], const unsigned* a, unsigned long long b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." ELEM16_PTX "." ELEM16_PTX " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
        : ACCUMULATORS_16(d, 0), ACCUMULATORS_16(d, 16), ACCUMULATORS_16(d, 32), ACCUMULATORS_16(d, 48)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef ACCUMULATORS_4
#undef ACCUMULATORS_16

// Registers that a wgmma in flight reads or writes are the hardware's until the wait. The compiler does not know: nothing may be computed
// from them, nor into them, across this line.
template <int COUNT>
__device__ __forceinline__ void pin(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}
template <int COUNT>
__device__ __forceinline__ void pin(unsigned (&a)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(a[i]) :: "memory");
}
