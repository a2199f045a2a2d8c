// Forward pass of a layer of 1,048,560 inputs and 16 hidden units: Rodinia's backprop and its first version in the GPA benchmark.
// tolerance: 1e-4
// from: GPA-Benchmark
// before kernel: bpnn_layerforward_CUDA
// after kernel: bpnn_layerforward_CUDA
#include "public.cuh"
#if VARIANT == 0
#include "rodinia/backprop/backprop_cuda_kernel.cu"
#else
#include "rodinia/backprop-opt1/backprop_cuda_kernel.cu"
#endif
#undef main

int main() {
    const int hidden = WIDTH, blocks = 65535, inputs = blocks * HEIGHT;
    const size_t weights = size_t(inputs + 1) * (hidden + 1), all = weights + size_t(blocks) * WIDTH;
    float *in = field::numbers(inputs + 1, 1), *given = field::numbers(weights, 2);
    float* weight = field::zeros<float>(all);
    float *partial = weight + weights, *unused = field::zeros<float>(hidden + 1);
    field::run([&] { field::restore(weight, given, weights); }, [&] {
        bpnn_layerforward_CUDA<<<dim3(1, blocks), dim3(WIDTH, HEIGHT)>>>(in, unused, weight, partial,
                                                                        inputs, hidden);
    });
    return field::report(weight, all);
}
