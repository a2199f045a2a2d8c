// A product of two half matrices of 4096 x 4096 with CUTLASS: tiles of 32 x 32, then 128 x 128.
// tolerance: 1e-3
#include "gemm.cuh"

using namespace gemm;
#if VARIANT == 0
using Product = TensorOp<Shape<32, 32, 32>, Shape<16, 16, 32>, 4>;
#else
using Product = TensorOp<Shape<128, 128, 32>, Shape<64, 64, 32>, 4>;
#endif

int main() { return run<Product>(4096, 4096, 4096); }
