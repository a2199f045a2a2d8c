// Softmax of 131,072 rows of 256 floats, with llm.c's kernels 1 and 8.
// tolerance: 1e-4
// from: llm.c
// before kernel: softmax_forward_kernel1
// after kernel: softmax_forward_online_kernel8
#include "public.cuh"
#include "dev/cuda/softmax_forward.cu"
#undef main

int main() {
    const int rows = 1 << 17, columns = 256;
    const size_t n = size_t(rows) * columns;
    float* in = field::numbers(n, 1, -4, 4);
    float* out = field::zeros<float>(n);
    field::run([&] {
#if VARIANT == 0
        softmax_forward_kernel1<<<rows / 256, 256>>>(out, in, rows, columns);
#else
        softmax_forward_online_kernel8<<<rows / 4, 128>>>(out, in, rows, columns);
#endif
    });
    return field::report(out, n);
}
