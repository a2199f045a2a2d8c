// A permutation of a tensor of 35 x 12 x 11 x 9 x 76 x 50 doubles: ExaTENSOR's versions 2 and 3 in the GPA benchmark.
// tolerance: 0
// from: GPA-Benchmark
// before kernel: tensor_transpose
// after kernel: tensor_transpose
#include "public.cuh"
#if VARIANT == 0
#define CUDA2
#else
#define CUDA3
#endif
#include "ExaTENSOR/common.h"
#undef main

template <class T>
T* three(const T (&values)[3]) {
    return field::copied(std::vector<T>(values, values + 3));
}

int main() {
    const int tiles = d4 * d5 * d6, tile = d1 * d2 * d3;
    double* in = field::numbers<double>(data_size, 1);
    double* out = field::zeros<double>(data_size);
    int *in_shape = three(shape_input), *out_shape = three(shape_output);
    float *in_inverse = three(shape_input_r), *out_inverse = three(shape_output_r);
    int *stride = three(stride_input), *local = three(stride_output_local);
    int* global = three(stride_output_global);
    field::run([&] {
        tensor_transpose<<<tiles, NTHREADS>>>(3, 3, tiles, tile, in_shape, out_shape, in_inverse,
                                              out_inverse, stride, local, global, in, out);
    });
    return field::report(out, data_size);
}
