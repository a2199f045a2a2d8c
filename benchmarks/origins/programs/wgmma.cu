// Launches a tensor rung of the ladder (RUNG 6: one buffer; 7: a ring of buffers) without the
// toolkit.
#if RUNG == 6
#define BM 128
#define BN 128
#define BK 64
#include "gemm_tensor/06_wgmma_tma.cu"
#define KERNEL wgmma_tma
#define THREADS 128
#define SHARED ((BM + BN) * BK * 2 + 1024)
#else
#define BM 128
#define BN 256
#define BK 64
#define STAGES 4
#include "gemm_tensor/07_wgmma_warp_specialized.cu"
#define KERNEL wgmma_warp_specialized
#define THREADS 384
#define SHARED (STAGES * (BM + BN) * BK * 2 + 1024)
#endif
#include "check.cuh"
#include <cuda_profiler_api.h>

static __global__ void fill_elements(elem16* out, size_t count, unsigned seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        unsigned h = ((unsigned)i * 2654435761u + seed) * 2246822519u;
        out[i] = to_elem16((float)(h >> 8) * (1.f / 16777216.f) - 0.5f);
    }
}

static elem16* elements(size_t count, unsigned seed) {
    elem16* p = nullptr;
    CHECK(cudaMalloc(&p, count * sizeof(elem16)));
    fill_elements<<<528, 256>>>(p, count, seed);
    finish();
    return p;
}

typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                           const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                           CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                           CUtensorMapFloatOOBfill);

static CUtensorMap map_of(Encode encode, elem16* data, int rows, int columns, int box_rows) {
    CUtensorMap map;
    cuuint64_t sizes[2] = {(cuuint64_t)columns, (cuuint64_t)rows},
               pitch[1] = {(cuuint64_t)columns * 2};
    cuuint32_t box[2] = {BK, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, pitch, box,
                             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        std::fprintf(stderr, "no tensor map: %d\n", (int)result), std::exit(2);
    return map;
}

int main() {
    const int size = 4096;
    elem16 *a = elements((size_t)size * size, 1), *b = elements((size_t)size * size, 2),
           *c = elements((size_t)size * size, 3);
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                           cudaEnableDefault, &found));
    CUtensorMap map_a = map_of((Encode)entry, a, size, size, BM),
                map_b = map_of((Encode)entry, b, size, size, BN);
    CHECK(cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    CHECK(cudaProfilerStart());
    KERNEL<<<dim3(size / BN, size / BM), THREADS, SHARED>>>(map_a, map_b, c, size, size, size);
    finish();
    CHECK(cudaProfilerStop());
    return 0;
}
