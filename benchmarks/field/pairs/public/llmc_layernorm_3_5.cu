// Layer normalisation of 8192 rows of 8192 floats, with llm.c's kernels 3 and 5.
// tolerance: 1e-3
// from: llm.c
// before kernel: layernorm_forward_kernel3
// after kernel: layernorm_forward_kernel5
#include "public.cuh"
#include "dev/cuda/layernorm_forward.cu"
#undef main

int main() {
    const int rows = 8192, columns = 8192;
    const size_t n = size_t(rows) * columns;
    float *in = field::numbers(n, 1, -1, 1), *out = field::zeros<float>(n);
    float *weight = field::numbers(columns, 2), *bias = field::numbers(columns, 3);
    float *mean = field::zeros<float>(rows), *rstd = field::zeros<float>(rows);
    field::run([&] {
#if VARIANT == 0
        layernorm_forward_kernel3<<<rows / 8, 256>>>(out, mean, rstd, in, weight, bias, rows, columns);
#else
        layernorm_forward_kernel5<<<rows, 1024>>>(out, mean, rstd, in, weight, bias, rows, columns);
#endif
    });
    return field::report(out, n);
}
