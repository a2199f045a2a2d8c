// Column sums of 32,768 x 3072 bfloat16 numbers, with llm.c's kernels 4 and 8.
// tolerance: 1e-2
// from: llm.c
// before kernel: matmul_backward_bias_kernel4
// after kernel: matmul_backward_bias_kernel8
#include "public.cuh"
#include "dev/cuda/matmul_backward_bias.cu"
#undef main

int main() {
    const int batch = 32, time = 1024, columns = 3072;
    floatX* dout = field::numbers<floatX>(size_t(batch) * time * columns, 1);
#if VARIANT == 0
    floatX* dbias = field::zeros<floatX>(columns);
    field::run([&] { field::clear(dbias, columns); }, [&] {
        matmul_backward_bias_kernel4<<<columns / 32, 512, 512 * sizeof(float)>>>(dbias, dout, batch, time,
                                                                                 columns);
    });
#else
    const dim3 block(4, 8, 16);
    const int across = columns / (block.y * x128::size);
    const int down = 4 * field::sm_count() / across;  // four blocks of 512 threads fill an SM
    float* dbias = field::zeros<float>(columns);
    field::run([&] { field::clear(dbias, columns); }, [&] {
        matmul_backward_bias_kernel8<<<dim3(across, down), block>>>(dbias, dout, batch, time, columns,
                                                                    std::bool_constant<true>{});
    });
#endif
    return field::report(field::floats(dbias, columns), columns);
}
