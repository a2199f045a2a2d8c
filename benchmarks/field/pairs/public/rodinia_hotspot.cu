// Two time steps of heat on a grid of 4096 x 4096 floats: Rodinia's hotspot and its version in the GPA benchmark.
// tolerance: 1e-4
// from: GPA-Benchmark
// before kernel: calculate_temp
// after kernel: calculate_temp
#include "public.cuh"
#if VARIANT == 0
#include "rodinia/hotspot/hotspot.cu"
#else
#include "rodinia/hotspot-opt/hotspot.cu"
#endif
#undef main

int main() {
    const int side = 4096, steps = 2, inner = BLOCK_SIZE - 2 * steps, across = (side + inner - 1) / inner;
    const size_t n = size_t(side) * side;
    float *power = field::numbers(n, 1, 0, 1e-6f), *from = field::numbers(n, 2, 323, 343);
    float* to = field::zeros<float>(n);
    const float width = 0.016f / side, capacity = 0.5f * 1.75e6f * 0.0005f * width * width;
    const float sideways = 1 / (2.0f * 100 * 0.0005f), upwards = 0.0005f / (100 * width * width);
    const float step = 0.001f / (3.0e6f / (0.5f * 0.0005f * 1.75e6f));
    field::run([&] {
        calculate_temp<<<dim3(across, across), dim3(BLOCK_SIZE, BLOCK_SIZE)>>>(
            steps, power, from, to, side, side, steps, steps, capacity, sideways, sideways, upwards,
            step, 0.001f);
    });
    return field::report(to, n);
}
