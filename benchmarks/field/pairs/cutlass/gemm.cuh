// What the CUTLASS pairs share: C = A * B with half inputs (A row-major, B column-major), summed and
// stored in float, run by a cutlass::gemm::device::Gemm of the pair's choice.
#pragma once
#include "../cuda/field.cuh"

#if !__has_include(<cutlass/gemm/device/gemm.h>)
#error "the CUTLASS headers are missing: pip install --no-deps nvidia-cutlass"
#endif
#include <cutlass/gemm/device/gemm.h>

namespace gemm {

using cutlass::half_t;
using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;
template <int M, int N, int K>
using Shape = cutlass::gemm::GemmShape<M, N, K>;

// A product on tensor cores with mma.m16n8k16.
template <class Block, class Warp, int Stages, int Alignment = 8, bool SplitK = false>
using TensorOp = cutlass::gemm::device::Gemm<
    half_t, RowMajor, half_t, ColumnMajor, float, RowMajor, float, cutlass::arch::OpClassTensorOp,
    cutlass::arch::Sm80, Block, Warp, Shape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<float, 4, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, Stages, Alignment, Alignment, SplitK>;

template <class Gemm>
int run(int m, int n, int k, int slices = 1) {
    auto* a = field::filled<half_t>(size_t(m) * k, [] __device__(size_t i) {
        return half_t(field::unit(i, 1) - 0.25f);
    });
    auto* b = field::filled<half_t>(size_t(n) * k, [] __device__(size_t i) {
        return half_t(field::unit(i, 2) - 0.25f);
    });
    float* c = field::zeros<float>(size_t(m) * n);
    typename Gemm::Arguments arguments({m, n, k}, {a, k}, {b, k}, {c, n}, {c, n}, {1.0f, 0.0f}, slices);
    size_t bytes = Gemm::get_workspace_size(arguments);
    void* workspace = bytes ? field::zeros<char>(bytes) : nullptr;
    field::run([&] {
        Gemm product;
        cutlass::Status status = product(arguments, workspace);
        if (status != cutlass::Status::kSuccess) {
            fprintf(stderr, "CUTLASS: %s\n", cutlass::cutlassGetStatusString(status));
            exit(5);
        }
    });
    return field::report(c, size_t(m) * n);
}

}  // namespace gemm
