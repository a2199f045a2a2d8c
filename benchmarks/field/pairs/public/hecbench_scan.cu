// Exclusive scans of 65,536 pieces of 1024 integers, with HeCBench's kernels scan and scan_bcao of scan-cuda.
// tolerance: 0
// from: HeCBench
// before kernel: scan
// after kernel: scan_bcao
#include "public.cuh"
#include "src/scan-cuda/main.cu"
#undef main

int main() {
    const int each = 1024;
    const int64_t pieces = 65536;
    const size_t n = size_t(pieces) * each;
    int* in = field::filled<int>(n, [] __device__(size_t i) { return int(field::hash(i) % 5 + 1); });
    int* out = field::zeros<int>(n);
    const int blocks = 16 * field::sm_count();
    field::run([&] {
#if VARIANT == 0
        scan<int, each><<<blocks, each / 2>>>(pieces, out, in);
#else
        scan_bcao<int, each><<<blocks, each / 2>>>(pieces, out, in);
#endif
    });
    return field::report(out, n);
}
