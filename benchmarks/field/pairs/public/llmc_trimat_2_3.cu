// Lower triangles of 1024 x 1024 products of queries and keys of 64 floats for 48 heads, with llm.c's versions 2 and 3.
// tolerance: 1e-3
// from: llm.c
// before kernel: trimul_global
// after kernel: trimul_global
#include "public.cuh"
#include "dev/cuda/trimat_forward.cu"
#undef main

int main() {
    const int batch = 4, time = 1024, channels = 768, heads = 12;
    const size_t n = size_t(batch) * heads * time * time;
    float* in = field::numbers(size_t(batch) * time * 3 * channels, 1, -1, 1);
    float* out = field::zeros<float>(n);
    field::run([&] {
#if VARIANT == 0
        trimul_launcher<matmul_tri_registers>(out, in, batch, time, channels, heads);
#else
        trimul_launcher<matmul_tri3>(out, in, batch, time, channels, heads);
#endif
    });
    return field::report(out, n);
}
