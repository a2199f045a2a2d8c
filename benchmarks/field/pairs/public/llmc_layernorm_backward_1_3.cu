// Gradient of a layer normalisation of 8192 rows of 512 floats, with llm.c's kernels 1 and 3.
// tolerance: 1e-3
// from: llm.c
// before kernel: layernorm_backward_kernel1
// after kernel: layernorm_backward_kernel3
#include "public.cuh"
#include "dev/cuda/layernorm_backward.cu"
#undef main

int main() {
    const int batch = 8, time = 1024, rows = batch * time, columns = 512;
    const size_t n = size_t(rows) * columns, all = n + 2 * columns;
    float *dout = field::numbers(n, 1, -1, 1), *in = field::numbers(n, 2);
    float *weight = field::numbers(columns, 3);
    float *mean = field::numbers(rows, 4, 0.49f, 0.51f), *rstd = field::numbers(rows, 5, 3.4f, 3.5f);
    float* din = field::zeros<float>(all);
    float *dweight = din + n, *dbias = dweight + columns;
    const int sms = field::sm_count();
    field::run([&] { field::clear(din, all); }, [&] {
#if VARIANT == 0
        layernorm_backward_kernel1<<<rows / 64, 64>>>(din, dweight, dbias, dout, in, weight, mean,
                                                      rstd, batch, time, columns);
#else
        layernorm_backward_kernel3<<<2 * sms, 512, 2 * columns * sizeof(float)>>>(
            din, dweight, dbias, dout, in, weight, mean, rstd, batch, time, columns);
#endif
    });
    return field::report(din, all);
}
