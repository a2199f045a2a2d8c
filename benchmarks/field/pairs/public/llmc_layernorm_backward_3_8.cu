// Gradient of a layer normalisation of 32,768 rows of 1536 bfloat16 numbers, with llm.c's kernels 3 and 8.
// tolerance: 1e-2
// from: llm.c
// before kernel: layernorm_backward_kernel3
// after kernel: layernorm_backward_kernel8
#include "public.cuh"
#include "dev/cuda/layernorm_backward.cu"
#undef main

int main() {
    const int batch = 32, time = 1024, rows = batch * time, columns = 1536;
    const size_t n = size_t(rows) * columns;
    floatX *dout = field::numbers<floatX>(n, 1, -1, 1), *in = field::numbers<floatX>(n, 2);
    floatX* weight = field::numbers<floatX>(columns, 3);
    floatX* mean = field::numbers<floatX>(rows, 4, 0.49f, 0.51f);
    floatX* rstd = field::numbers<floatX>(rows, 5, 3.4f, 3.5f);
    floatX *din = field::zeros<floatX>(n), *dweight = field::zeros<floatX>(columns);
    floatX* dbias = field::zeros<floatX>(columns);
    float* scratch = field::zeros<float>(2 * columns + 1);
    const int sms = field::sm_count();
    auto reset = [&] {
        field::clear(din, n);
        field::clear(dweight, columns);
        field::clear(dbias, columns);
        field::clear(scratch, 2 * columns + 1);
    };
    field::run(reset, [&] {
#if VARIANT == 0
        layernorm_backward_kernel3<<<2 * sms, 512, 2 * columns * sizeof(float)>>>(
            din, dweight, dbias, dout, in, weight, mean, rstd, batch, time, columns);
#else
        layernorm_backward_kernel8<<<2 * sms, 512, (2 * columns + 1) * sizeof(float)>>>(
            din, dweight, dbias, scratch, dout, in, weight, mean, rstd, batch, time, columns);
#endif
    });
    return field::report(field::floats(din, n), n);
}
