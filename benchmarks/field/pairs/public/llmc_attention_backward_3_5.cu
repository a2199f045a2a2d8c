// Gradient of a causal softmax of 48 attention matrices of 512 x 512 floats, with llm.c's kernels 3 and 5.
// tolerance: 1e-3
// from: llm.c
// before kernel: softmax_autoregressive_backward_kernel3
// after kernel: softmax_autoregressive_backward_kernel5
#include "public.cuh"
#include "dev/cuda/attention_backward.cu"
#undef main

int main() {
    const int batch = 4, heads = 12, channels = 768, time = 512;
    const size_t n = size_t(batch) * heads * time * time;
    // Rows that sum to about one, and nothing above the diagonal
    float* probability = field::filled<float>(n, [=] __device__(size_t i) {
        size_t row = i / time % time, column = i % time;
        return column <= row ? 2.0f * field::unit(i, 1) / (row + 1) : 0.0f;
    });
    float *given = field::numbers(n, 2, -1, 1), *out = field::zeros<float>(n);
    field::run([&] {
#if VARIANT == 0
        launch_softmax_3(out, given, probability, batch, time, channels, heads, 128);
#else
        launch_softmax_5(out, given, probability, batch, time, channels, heads, 128);
#endif
    });
    return field::report(out, n);
}
