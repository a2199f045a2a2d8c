// Softmax, loss and gradient of 2048 rows of 50,257 logits, with llm.c's kernels 1 and 5.
// tolerance: 1e-3
// from: llm.c
// before kernel: fused_classifier_kernel1
// after kernel: fused_classifier_kernel5
#include "public.cuh"
#include "dev/cuda/classifier_fused.cu"
#undef main

int main() {
    const int batch = 2, time = 1024, rows = batch * time, words = 50257, padded = 50304;
    const size_t n = size_t(rows) * padded;
    float *logits = field::numbers(n, 1, -5, 5), *dlogits = field::zeros<float>(n);
    float *losses = field::zeros<float>(rows), *dlosses = field::numbers(rows, 2, 0.5f, 1);
    int* target = field::filled<int>(rows, [=] __device__(size_t i) { return field::hash(i) % words; });
    field::run([&] {
#if VARIANT == 0
        fused_classifier_kernel1<<<rows / 4, 128>>>(dlogits, losses, logits, dlosses, target, batch,
                                                     time, words, padded);
#else
        fused_classifier_kernel5<true, false><<<rows, 1024>>>(
            dlogits, losses, nullptr, logits, dlosses, target, batch, time, words, padded);
#endif
    });
    return field::report(dlogits, n);
}
