// Causal softmax of 48 attention matrices of 1024 x 1024 floats, with llm.c's kernels 1 and 5.
// tolerance: 1e-4
// from: llm.c
// before kernel: attention_softmax_kernel1
// after kernel: softmax_forward_kernel5
#include "public.cuh"
#include "dev/cuda/attention_forward.cu"
#undef main

int main() {
    const int batch = 4, heads = 12, time = 1024;
    const size_t rows = size_t(batch) * heads * time, n = rows * time;
    float* in = field::numbers(n, 1, -4, 4);
    float* out = field::zeros<float>(n);
    field::run([&] {
#if VARIANT == 0
        attention_softmax_kernel1<<<rows / 256, 256>>>(out, in, batch, time, heads);
#else
        softmax_forward_kernel5<<<rows / 8, 256>>>(out, 1.0f, in, batch * heads, time);
#endif
    });
    return field::report(out, n);
}
