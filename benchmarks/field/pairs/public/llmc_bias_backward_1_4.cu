// Column sums of 16,384 x 3072 bfloat16 numbers, with llm.c's kernels 1 and 4.
// tolerance: 1e-2
// from: llm.c
// before kernel: matmul_backward_bias_kernel1
// after kernel: matmul_backward_bias_kernel4
#include "public.cuh"
#include "dev/cuda/matmul_backward_bias.cu"
#undef main

int main() {
    const int batch = 16, time = 1024, columns = 3072;
    floatX* dout = field::numbers<floatX>(size_t(batch) * time * columns, 1);
    floatX* dbias = field::zeros<floatX>(columns);
    field::run([&] { field::clear(dbias, columns); }, [&] {
#if VARIANT == 0
        matmul_backward_bias_kernel1<<<columns, 512, 512 * sizeof(float)>>>(dbias, dout, batch, time, columns);
#else
        matmul_backward_bias_kernel4<<<columns / 32, 512, 512 * sizeof(float)>>>(dbias, dout, batch, time,
                                                                                 columns);
#endif
    });
    return field::report(field::floats(dbias, columns), columns);
}
