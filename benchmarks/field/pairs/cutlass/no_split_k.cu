// A product of 256 x 65536 and 65536 x 256 halves with CUTLASS: without split-K, then with 32 slices.
// tolerance: 1e-3
#include "gemm.cuh"

using namespace gemm;

int main() {
    return run<TensorOp<Shape<128, 128, 32>, Shape<64, 64, 32>, 4, 8, VARIANT == 1>>(
        256, 256, 65536, VARIANT == 0 ? 1 : 32);
}
