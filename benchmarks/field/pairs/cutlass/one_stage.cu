// A product of two half matrices of 4096 x 4096 with CUTLASS: two stages of tiles, then four.
// tolerance: 1e-3
#include "gemm.cuh"

using namespace gemm;

int main() {
    return run<TensorOp<Shape<128, 128, 32>, Shape<64, 64, 32>, VARIANT == 0 ? 2 : 4>>(4096, 4096, 4096);
}
