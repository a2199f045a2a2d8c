// Stands in for cuBLAS's headers where a public program sets it up but never multiplies.
#ifndef STUB_CUBLAS
#define STUB_CUBLAS
typedef int cublasStatus_t;
typedef int cublasComputeType_t;
typedef int cublasMath_t;
typedef void* cublasHandle_t;
typedef void* cublasLtHandle_t;
enum {
    CUBLAS_STATUS_SUCCESS,
    CUBLAS_COMPUTE_32F,
    CUBLAS_COMPUTE_32F_FAST_TF32,
    CUBLAS_TF32_TENSOR_OP_MATH,
    CUBLAS_DEFAULT_MATH
};
inline int cublasCreate(void*) { return 0; }
inline int cublasLtCreate(void*) { return 0; }
inline int cublasSetMathMode(void*, int) { return 0; }
#endif
