// Transpose of 8192 x 8192 floats, with HeCBench's kernels transposeCoalesced and transposeNoBankConflicts of matrixT-cuda.
// tolerance: 0
// from: HeCBench
// before kernel: transposeCoalesced
// after kernel: transposeNoBankConflicts
#include "public.cuh"
#include "src/matrixT-cuda/main.cu"
#undef main

int main() {
    const int side = 8192;
    const size_t n = size_t(side) * side;
    float *in = field::numbers(n, 1), *out = field::zeros<float>(n);
    const dim3 grid(side / TILE_DIM, side / TILE_DIM), block(TILE_DIM, BLOCK_ROWS);
    field::run([&] {
#if VARIANT == 0
        transposeCoalesced<<<grid, block>>>(out, in, side, side);
#else
        transposeNoBankConflicts<<<grid, block>>>(out, in, side, side);
#endif
    });
    return field::report(out, n);
}
