// Likelihood of 40,000 particles over 69 pixels each: Rodinia's particlefilter and its version in the GPA benchmark.
// tolerance: 1e-9
// from: GPA-Benchmark
// before kernel: likelihood_kernel
// after kernel: likelihood_kernel
#include "public.cuh"
#if VARIANT == 0
#include "rodinia/particlefilter/ex_particle_CUDA_float_seq.cu"
#else
#include "rodinia/particlefilter-opt/ex_particle_CUDA_float_seq.cu"
#endif
#undef main

int main() {
    const int particles = 40000, pixels = 69, side = 512, frames = 10, size = side * side * frames;
    const int blocks = (particles + threads_per_block - 1) / threads_per_block;  // the programs set it
    double *x = field::zeros<double>(particles), *y = field::zeros<double>(particles);
    double *old_x = field::numbers<double>(particles, 1, 250, 260);
    double *old_y = field::numbers<double>(particles, 2, 250, 260);
    double *cdf = field::zeros<double>(particles), *u = field::zeros<double>(particles);
    double *likelihood = field::zeros<double>(particles), *weight = field::zeros<double>(particles);
    double* partial = field::zeros<double>(blocks);
    int* place = field::zeros<int>(size_t(particles) * pixels);
    int* offset = field::filled<int>(2 * pixels, [] __device__(size_t i) {
        return int(i / 2 % 9) * int(i % 2) + int(i / 2 / 9) * int(1 - i % 2) - 4;
    });
    auto* image = field::filled<unsigned char>(size, [] __device__(size_t i) {
        return 160 + field::hash(i) % 8;
    });
    int* first_seed = field::filled<int>(particles, [] __device__(size_t i) {
        return int(field::hash(i + 3) % 1000000 + 1);
    });
    int* seed = field::zeros<int>(particles);
    field::run([&] { field::restore(seed, first_seed, particles); }, [&] {
        likelihood_kernel<<<blocks, threads_per_block>>>(x, y, old_x, old_y, cdf, place, offset,
                                                         likelihood, image, u, weight, particles, pixels,
                                                         size, 1, side, frames, seed, partial);
    });
    return field::report(weight, particles);
}
