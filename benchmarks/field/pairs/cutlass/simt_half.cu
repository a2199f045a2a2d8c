// A product of two half matrices of 4096 x 4096 with CUTLASS: SIMT, then tensor cores.
// tolerance: 1e-3
#include "gemm.cuh"

using namespace gemm;
#if VARIANT == 0
using Product = cutlass::gemm::device::Gemm<half_t, RowMajor, half_t, ColumnMajor, float, RowMajor, float,
                                            cutlass::arch::OpClassSimt, cutlass::arch::Sm50,
                                            Shape<128, 128, 8>, Shape<32, 64, 8>, Shape<1, 1, 1>>;
#else
using Product = TensorOp<Shape<128, 128, 32>, Shape<64, 64, 32>, 4>;
#endif

int main() { return run<Product>(4096, 4096, 4096); }
