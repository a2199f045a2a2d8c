// More shapes of warpgroup matrix instructions: 64 x N x 16 for N = 104, 112, 120 and 136, 144 .. 248. common/wgmma.cuh has 128 and 256.
#pragma once

#include "common/wgmma.cuh"

#define ACCUMULATORS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACCUMULATORS_16(d, i) ACCUMULATORS_4(d, i), ACCUMULATORS_4(d, i + 4), ACCUMULATORS_4(d, i + 8), ACCUMULATORS_4(d, i + 12)
#define ACCUMULATORS_52(d) ACCUMULATORS_16(d, 0), ACCUMULATORS_16(d, 16), ACCUMULATORS_16(d, 32), ACCUMULATORS_4(d, 48)
#define ACCUMULATORS_56(d) ACCUMULATORS_52(d), ACCUMULATORS_4(d, 52)
#define ACCUMULATORS_60(d) ACCUMULATORS_56(d), ACCUMULATORS_4(d, 56)
#define ACCUMULATORS_64(d) ACCUMULATORS_60(d), ACCUMULATORS_4(d, 60)
#define ACCUMULATORS_68(d) ACCUMULATORS_64(d), ACCUMULATORS_4(d, 64)
#define ACCUMULATORS_72(d) ACCUMULATORS_68(d), ACCUMULATORS_4(d, 68)
#define ACCUMULATORS_76(d) ACCUMULATORS_72(d), ACCUMULATORS_4(d, 72)
#define ACCUMULATORS_80(d) ACCUMULATORS_76(d), ACCUMULATORS_4(d, 76)
#define ACCUMULATORS_84(d) ACCUMULATORS_80(d), ACCUMULATORS_4(d, 80)
#define ACCUMULATORS_88(d) ACCUMULATORS_84(d), ACCUMULATORS_4(d, 84)
#define ACCUMULATORS_92(d) ACCUMULATORS_88(d), ACCUMULATORS_4(d, 88)
#define ACCUMULATORS_96(d) ACCUMULATORS_92(d), ACCUMULATORS_4(d, 92)
#define ACCUMULATORS_100(d) ACCUMULATORS_96(d), ACCUMULATORS_4(d, 96)
#define ACCUMULATORS_104(d) ACCUMULATORS_100(d), ACCUMULATORS_4(d, 100)
#define ACCUMULATORS_108(d) ACCUMULATORS_104(d), ACCUMULATORS_4(d, 104)
#define ACCUMULATORS_112(d) ACCUMULATORS_108(d), ACCUMULATORS_4(d, 108)
#define ACCUMULATORS_116(d) ACCUMULATORS_112(d), ACCUMULATORS_4(d, 112)
#define ACCUMULATORS_120(d) ACCUMULATORS_116(d), ACCUMULATORS_4(d, 116)
#define ACCUMULATORS_124(d) ACCUMULATORS_120(d), ACCUMULATORS_4(d, 120)

// The numbers of the first COUNT operands.
#define OPERANDS_52 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51"
#define OPERANDS_56 OPERANDS_52 ", %52, %53, %54, %55"
#define OPERANDS_60 OPERANDS_56 ", %56, %57, %58, %59"
#define OPERANDS_64 OPERANDS_60 ", %60, %61, %62, %63"
#define OPERANDS_68 OPERANDS_64 ", %64, %65, %66, %67"
#define OPERANDS_72 OPERANDS_68 ", %68, %69, %70, %71"
#define OPERANDS_76 OPERANDS_72 ", %72, %73, %74, %75"
#define OPERANDS_80 OPERANDS_76 ", %76, %77, %78, %79"
#define OPERANDS_84 OPERANDS_80 ", %80, %81, %82, %83"
#define OPERANDS_88 OPERANDS_84 ", %84, %85, %86, %87"
#define OPERANDS_92 OPERANDS_88 ", %88, %89, %90, %91"
#define OPERANDS_96 OPERANDS_92 ", %92, %93, %94, %95"
#define OPERANDS_100 OPERANDS_96 ", %96, %97, %98, %99"
#define OPERANDS_104 OPERANDS_100 ", %100, %101, %102, %103"
#define OPERANDS_108 OPERANDS_104 ", %104, %105, %106, %107"
#define OPERANDS_112 OPERANDS_108 ", %108, %109, %110, %111"
#define OPERANDS_116 OPERANDS_112 ", %112, %113, %114, %115"
#define OPERANDS_120 OPERANDS_116 ", %116, %117, %118, %119"
#define OPERANDS_124 OPERANDS_120 ", %120, %121, %122, %123"

// d (64 x N, fp32) = a (64 x 16) * b (16 x N) + (accumulate ? d : 0), with COUNT = N / 2 accumulators a thread. The operands behind them: A and B,
// the numbers of the descriptors, and P, that of `accumulate`.
#define DEFINE_WGMMA_K16(N, COUNT, A, B, P) \
    __device__ __forceinline__ void wgmma_k16(float (&d)[COUNT], unsigned long long a, unsigned long long b, bool accumulate) { \
        asm volatile( \
            "{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\n" \
            "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ELEM16_PTX "." ELEM16_PTX " {" OPERANDS_##COUNT "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}" \
            : ACCUMULATORS_##COUNT(d) \
            : "l"(a), "l"(b), "r"((int)accumulate)); \
    }
DEFINE_WGMMA_K16(104, 52, 52, 53, 54)
DEFINE_WGMMA_K16(112, 56, 56, 57, 58)
DEFINE_WGMMA_K16(120, 60, 60, 61, 62)
DEFINE_WGMMA_K16(136, 68, 68, 69, 70)
DEFINE_WGMMA_K16(144, 72, 72, 73, 74)
DEFINE_WGMMA_K16(152, 76, 76, 77, 78)
DEFINE_WGMMA_K16(160, 80, 80, 81, 82)
DEFINE_WGMMA_K16(168, 84, 84, 85, 86)
DEFINE_WGMMA_K16(176, 88, 88, 89, 90)
DEFINE_WGMMA_K16(184, 92, 92, 93, 94)
DEFINE_WGMMA_K16(192, 96, 96, 97, 98)
DEFINE_WGMMA_K16(200, 100, 100, 101, 102)
DEFINE_WGMMA_K16(208, 104, 104, 105, 106)
DEFINE_WGMMA_K16(216, 108, 108, 109, 110)
DEFINE_WGMMA_K16(224, 112, 112, 113, 114)
DEFINE_WGMMA_K16(232, 116, 116, 117, 118)
DEFINE_WGMMA_K16(240, 120, 120, 121, 122)
DEFINE_WGMMA_K16(248, 124, 124, 125, 126)

#undef DEFINE_WGMMA_K16
