// One step of a Gaussian elimination of 4096 equations: Rodinia's gaussian and its version in the GPA benchmark.
// tolerance: 1e-5
// from: GPA-Benchmark
// before kernel: Fan2
// after kernel: Fan2
#include "public.cuh"
// It prints two properties that CUDA 13 no longer has, and that nothing here needs.
#define clockRate l2CacheSize
#define deviceOverlap asyncEngineCount
#if VARIANT == 0
#include "rodinia/gaussian/gaussian.cu"
#else
#include "rodinia/gaussian-opt/gaussian.cu"
#endif
#undef main

int main() {
    const int size = 4096, edge = BLOCK_SIZE_XY;  // the two programs set it
    const size_t n = size_t(size) * size;
    float *factor = field::numbers(n, 1, -1, 1), *given = field::numbers(n, 2, -1, 1);
    float *right_given = field::numbers(size, 3, -1, 1), *matrix = field::zeros<float>(n + size);
    float* right = matrix + n;
    auto reset = [&] {
        field::restore(matrix, given, n);
        field::restore(right, right_given, size);
    };
    field::run(reset, [&] {
        Fan2<<<dim3(size / edge, size / edge), dim3(edge, edge)>>>(factor, matrix, right, size, size, 0);
    });
    return field::report(matrix, n + size);
}
