// Column sums of 8192 x 3072 floats, with llm.c's naive and faster kernels.
// tolerance: 1e-4
// from: llm.c
// before kernel: matmul_backward_bias_kernel_naive
// after kernel: matmul_backward_bias_kernel_faster
#include "public.cuh"
#include "dev/cuda/matmul_backward.cu"
#undef main

int main() {
    const int batch = 8, time = 1024, columns = 3072;
    float* dout = field::numbers(size_t(batch) * time * columns, 1);
    float* dbias = field::zeros<float>(columns);
    field::run([&] {
#if VARIANT == 0
        matmul_backward_bias_kernel_naive<<<columns / 256, 256>>>(dbias, dout, batch, time, columns);
#else
        matmul_backward_bias_kernel_faster<<<columns, 512, 512 * sizeof(float)>>>(dbias, dout, batch, time,
                                                                                  columns);
#endif
    });
    return field::report(dbias, columns);
}
