// Gradient of a causal softmax of 24 attention matrices of 1024 x 1024 floats, with llm.c's kernels 6 and 8.
// tolerance: 1e-3
// from: llm.c
// before kernel: softmax_autoregressive_backward_kernel6
// after kernel: softmax_autoregressive_backward_kernel8
#include "public.cuh"
#include "dev/cuda/attention_backward.cu"
#undef main

int main() {
    const int batch = 2, heads = 12, channels = 768, time = 1024;
    const size_t n = size_t(batch) * heads * time * time;
    // Rows that sum to about one, and nothing above the diagonal
    float* probability = field::filled<float>(n, [=] __device__(size_t i) {
        size_t row = i / time % time, column = i % time;
        return column <= row ? 2.0f * field::unit(i, 1) / (row + 1) : 0.0f;
    });
    float *given = field::numbers(n, 2, -1, 1), *out = field::zeros<float>(n);
    field::run([&] {
#if VARIANT == 0
        launch_softmax_6(out, given, probability, batch, time, channels, heads, 256);
#else
        launch_softmax_8(out, given, probability, batch, time, channels, heads, 256);
#endif
    });
    return field::report(out, n);
}
