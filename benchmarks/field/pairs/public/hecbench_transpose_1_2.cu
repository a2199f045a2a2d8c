// Transpose of 8192 x 8192 floats, with HeCBench's kernels transposeNaive and transposeCoalesced of matrixT-cuda.
// tolerance: 0
// from: HeCBench
// before kernel: transposeNaive
// after kernel: transposeCoalesced
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
        transposeNaive<<<grid, block>>>(out, in, side, side);
#else
        transposeCoalesced<<<grid, block>>>(out, in, side, side);
#endif
    });
    return field::report(out, n);
}
