// Sum and layer normalisation of 65,536 rows of 768 bfloat16 numbers, with llm.c's versions 2 and 3.
// tolerance: 1e-2
// from: llm.c
// before kernel: fused_residual_forward2
// after kernel: fused_residual_forward3
#include "public.cuh"
#include "dev/cuda/fused_residual_forward.cu"
#undef main

int main() {
    const int rows = 65536, columns = 768;
    const size_t n = size_t(rows) * columns;
    floatX *one = field::numbers<floatX>(n, 1, -1, 1), *other = field::numbers<floatX>(n, 2, -1, 1);
    floatX *weight = field::numbers<floatX>(columns, 3), *bias = field::numbers<floatX>(columns, 4);
    floatX *mean = field::zeros<floatX>(rows), *rstd = field::zeros<floatX>(rows);
    floatX* residual = field::zeros<floatX>(2 * n);
    floatX* normed = residual + n;
    field::run([&] {
#if VARIANT == 0
        fused_residual_forward2<<<rows / 128, 128>>>(residual, normed, mean, rstd, one, other, weight, bias, rows, columns);
#else
        fused_residual_forward3<<<rows / 8, dim3(32, 8)>>>(residual, normed, mean, rstd, one, other, weight, bias, rows, columns);
#endif
    });
    return field::report(field::floats(residual, 2 * n), 2 * n);
}
