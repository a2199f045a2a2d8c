// Gradient of token and position embeddings of 2048 positions of 768 floats, with llm.c's kernels 2 and 1.
// tolerance: 1e-4
// from: llm.c
// before kernel: encoder_backward_kernel2
// after kernel: encoder_backward_kernel1
#include "public.cuh"
#include "dev/cuda/encoder_backward.cu"
#undef main

int main() {
    const int batch = 2, time = 1024, channels = 768, words = 50257, rows = batch * time;
    const size_t n = size_t(rows) * channels, all = size_t(words + time) * channels;
    int* token = field::filled<int>(rows, [=] __device__(size_t i) { return field::hash(i) % words; });
    float* dout = field::numbers(n, 1, -1, 1);
    float* dwte = field::zeros<float>(all);
    float* dwpe = dwte + size_t(words) * channels;
    field::run([&] { field::clear(dwte, all); }, [&] {
#if VARIANT == 0
        encoder_backward_kernel2<<<channels / 256, 256>>>(dwte, dwpe, dout, token, batch, time, channels);
#else
        encoder_backward_kernel1<<<n / 256, 256>>>(dwte, dwpe, dout, token, batch, time, channels);
#endif
    });
    return field::report(dwte, all);
}
