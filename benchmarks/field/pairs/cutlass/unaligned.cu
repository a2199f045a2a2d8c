// A product of two half matrices of 4096 x 4096 with CUTLASS: alignment 1, then 8.
// tolerance: 1e-3
#include "gemm.cuh"

using namespace gemm;

int main() {
    return run<TensorOp<Shape<128, 128, 32>, Shape<64, 64, 32>, 2, VARIANT == 0 ? 1 : 8>>(4096, 4096, 4096);
}
