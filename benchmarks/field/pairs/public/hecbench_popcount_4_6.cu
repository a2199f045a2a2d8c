// Bits set in each of 33 million words of 64 bits, with HeCBench's kernels pc4 and pc6 of popcount-cuda.
// tolerance: 0
// from: HeCBench
// before kernel: pc4
// after kernel: pc6
#include "public.cuh"
#include "src/popcount-cuda/main.cu"
#undef main

int main() {
    const int n = 1 << 25;
    auto* in = field::filled<unsigned long>(n, [] __device__(size_t i) {
        return (static_cast<unsigned long>(field::hash(i)) << 32) | field::hash(i + n);
    });
    int* out = field::zeros<int>(n);
    field::run([&] {
#if VARIANT == 0
        pc4<<<n / BLOCK_SIZE, BLOCK_SIZE>>>(in, out, n);
#else
        pc6<<<n / BLOCK_SIZE, BLOCK_SIZE>>>(in, out, n);
#endif
    });
    return field::report(out, n);
}
