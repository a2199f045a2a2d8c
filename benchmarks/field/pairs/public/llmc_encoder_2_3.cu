// Token and position embeddings of 65,536 positions of 768 bfloat16 numbers, with llm.c's kernels 2 and 3.
// tolerance: 1e-2
// from: llm.c
// before kernel: encoder_forward_kernel2
// after kernel: encoder_forward_kernel3
#include "public.cuh"
#include "dev/cuda/encoder_forward.cu"
#undef main

int main() {
    const int batch = 64, time = 1024, channels = 768, words = 50257;
    const size_t rows = size_t(batch) * time, n = rows * channels;
    int* token = field::filled<int>(rows, [=] __device__(size_t i) { return field::hash(i) % words; });
    floatX* wte = field::numbers<floatX>(size_t(words) * channels, 1, -1, 1);
    floatX* wpe = field::numbers<floatX>(size_t(time) * channels, 2, -1, 1);
    floatX* out = field::zeros<floatX>(n);
    field::run([&] {
#if VARIANT == 0
        encoder_forward_kernel2<<<n / 256, 256>>>(out, token, wte, wpe, batch, time, channels);
#else
        encoder_forward_kernel3<<<n / (256 * x128::size), 256>>>(out, token, wte, wpe, batch, time, channels);
#endif
    });
    return field::report(field::floats(out, n), n);
}
