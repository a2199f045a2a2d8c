// A product of 4096 x 768 and 768 x 768 floats with a bias, with llm.c's kernels 1 and 4.
// tolerance: 1e-3
// from: llm.c
// before kernel: matmul_forward_kernel1
// after kernel: matmul_forward_kernel4
#include "public.cuh"
#include "dev/cuda/matmul_forward.cu"
#undef main

int main() {
    const int rows = 4096, channels = 768, outputs = 768;
    const size_t n = size_t(rows) * outputs;
    float* in = field::numbers(size_t(rows) * channels, 1, -1, 1);
    float* weight = field::numbers(size_t(outputs) * channels, 2, -1, 1);
    float *bias = field::numbers(outputs, 3), *out = field::zeros<float>(n);
    field::run([&] {
#if VARIANT == 0
        matmul_forward_kernel1<<<dim3(rows / 16, outputs / 16), dim3(16, 16)>>>(
            out, in, weight, bias, rows, channels, outputs);
#else
        matmul_forward_kernel4<<<dim3(rows / 128, outputs / 128), dim3(16, 16)>>>(
            out, in, weight, bias, channels, outputs);
#endif
    });
    return field::report(out, n);
}
