// Causal attention of 264 sequences of 128 positions, one head of 64 floats, with llm.c's kernels 2 and fused 1.
// tolerance: 1e-3
// from: llm.c
// before kernel: attention_forward_kernel2
// after kernel: attention_forward_fused1
#include "public.cuh"
#include "dev/cuda/attention_forward.cu"
#undef main

int main() {
    const int batch = 264, time = 128, size = 64, tile = 32;
    const size_t n = size_t(batch) * time * size, square = size_t(batch) * time * time;
    float* in = field::numbers(3 * n, 1, -1, 1);
    float* out = field::zeros<float>(n);
#if VARIANT == 0
    float *q = field::zeros<float>(n), *k = field::zeros<float>(n), *v = field::zeros<float>(n);
    float *sum = field::zeros<float>(batch * time), *most = field::zeros<float>(batch * time);
    permute_kernel<<<n / 256, 256>>>(q, k, v, in, batch, time, 1, size);
    auto reset = [&] {
        field::clear(out, n);
        field::clear(sum, batch * time);
        // Each byte 0xf0: a float of -6e29
        CHECK(cudaMemset(most, 0xf0, batch * time * sizeof(float)));
    };
    field::run(reset, [&] {
        attention_forward_kernel2<<<dim3(batch, 1), tile, (3 * tile * size + tile * tile) * sizeof(float)>>>(
            q, k, v, time, size, time / tile, time / tile, tile, tile, 0.125f, sum, most, out);
    });
#else
    float *before = field::zeros<float>(square), *after = field::zeros<float>(square);
    field::run([&] {
        attention_forward_fused1<<<dim3(time / 8, 1, batch), 256>>>(out, before, after, in, batch,
                                                                   time, size, 1);
    });
#endif
    return field::report(out, n);
}
