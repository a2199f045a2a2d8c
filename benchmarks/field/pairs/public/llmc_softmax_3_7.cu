// Softmax of 2048 rows of 50,257 floats, with llm.c's kernels 3 and 7.
// tolerance: 1e-4
// from: llm.c
// before kernel: softmax_forward_kernel3
// after kernel: softmax_forward_kernel7
#include "public.cuh"
#include "dev/cuda/softmax_forward.cu"
#undef main

int main() {
    const int rows = 2048, columns = 50257;
    const size_t n = size_t(rows) * columns;
    float* in = field::numbers(n, 1, -4, 4);
    float* out = field::zeros<float>(n);
    field::run([&] {
#if VARIANT == 0
        softmax_forward_kernel3<<<rows, 32, 32 * sizeof(float)>>>(out, in, rows, columns);
#else
        softmax_forward_kernel7<<<rows, 512, 2 * 512 / 32 * sizeof(float)>>>(out, in, rows, columns);
#endif
    });
    return field::report(out, n);
}
