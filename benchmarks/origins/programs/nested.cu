// Names as a template library makes them: nested layouts, a kernel over an operator, lambdas as
// kernels.
#include "check.cuh"

namespace tile {
template <int V>
struct C {
    static constexpr int value = V;
};
using _1 = C<1>;
template <class... T>
struct tuple {};
template <class Shape, class Stride>
struct Layout {};
template <int B, int M, int S>
struct Swizzle {};
template <class S, class L>
struct ComposedLayout {};
template <class Engine, class L>
struct Tensor {
    float* data;
};
template <class P>
struct ViewEngine {};
struct gmem_ptr_tag {};
}  // namespace tile

namespace gemm {
namespace threadblock {
template <int M, int N, int K>
struct GemmShape {
    static constexpr int kM = M, kN = N, kK = K;
};
}  // namespace threadblock

namespace epilogue {
template <class T, int Count, class Acc, class Compute, bool Scaled>
struct LinearCombination {
    struct Params {
        Compute alpha, beta;
    };
    __device__ static Compute apply(Params const& p, Acc a, T c) {
        return p.alpha * a + p.beta * c;
    }
};
}  // namespace epilogue

namespace collective {
template <class Shape, class LayoutA, class LayoutB, int Stages>
struct Mainloop {
    static constexpr int kStages = Stages;
    using TileShape = Shape;
};
}  // namespace collective

namespace kernel {
template <class Problem, class Mainloop_, class Epilogue_>
struct GemmUniversal {
    using Mainloop = Mainloop_;
    using Epilogue = Epilogue_;
    struct Params {
        float const* a;
        float const* b;
        float* c;
        int m, n, k;
        typename Epilogue::Params epilogue;
    };
    __device__ void operator()(Params const& p) const {
        constexpr int T = Mainloop::TileShape::kM;
        __shared__ float sa[T][T + 1], sb[T][T + 1];
        int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
        float sum = 0.f;
        for (int k0 = 0; k0 < p.k; k0 += T) {
            sa[threadIdx.y][threadIdx.x] = p.a[row * p.k + k0 + threadIdx.x];
            sb[threadIdx.y][threadIdx.x] = p.b[(k0 + threadIdx.y) * p.n + col];
            __syncthreads();
#pragma unroll
            for (int k = 0; k < T; ++k) sum += sa[threadIdx.y][k] * sb[k][threadIdx.x];
            __syncthreads();
        }
        float& out = p.c[row * p.n + col];
        out = Epilogue::apply(p.epilogue, sum, out);
    }
};
}  // namespace kernel
}  // namespace gemm

namespace device_runtime {
template <class Operator>
__global__ void __launch_bounds__(1024)
    device_kernel(__grid_constant__ typename Operator::Params const params) {
    Operator op;
    op(params);
}

template <class F>
__global__ void for_each(int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) f(i);
}

template <class T>
__global__ void copy_view(T view, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) view.data[i] += 1.f;
}
}  // namespace device_runtime

using Row = tile::Layout<
    tile::tuple<tile::tuple<tile::C<8>, tile::C<16>>, tile::tuple<tile::C<64>, tile::_1>>,
    tile::tuple<tile::tuple<tile::C<64>, tile::C<512>>, tile::tuple<tile::_1, tile::C<0>>>>;
using Smem = tile::ComposedLayout<tile::Swizzle<3, 4, 3>, Row>;
using Shape = gemm::threadblock::GemmShape<32, 32, 32>;
using Mainloop =
    gemm::collective::Mainloop<Shape, Smem, tile::ComposedLayout<tile::Swizzle<2, 4, 3>, Row>, 3>;
using Epilogue = gemm::epilogue::LinearCombination<float, 4, float, float, true>;
using Gemm = gemm::kernel::GemmUniversal<tile::tuple<int, int, int, tile::_1>, Mainloop, Epilogue>;
using View = tile::Tensor<tile::ViewEngine<tile::gmem_ptr_tag>, Smem>;

static void lambdas(float* y, int n) {
    float factor = 1.25f;
    auto plain = [=] __device__(int i) { y[i] *= factor; };
    device_runtime::for_each<<<n / 256, 256>>>(n, plain);
    auto both = [=] __host__ __device__(int i) { y[i] += factor; };
    device_runtime::for_each<<<n / 256, 256>>>(n, both);
    device_runtime::for_each<<<n / 256, 256>>>(n,
                                               [y, n] __device__(int i) { y[i] = y[n - 1 - i]; });
}

int main() {
    const int n = 256;
    float *a = filled(n * n), *b = filled(n * n, 2), *c = filled(n * n, 3);
    Gemm::Params params{a, b, c, n, n, n, {1.5f, 0.5f}};
    device_runtime::device_kernel<Gemm><<<dim3(n / 32, n / 32), dim3(32, 32)>>>(params);
    device_runtime::copy_view<View><<<n, 256>>>(View{c}, n * n);
    lambdas(c, n * n);
    finish();
    return 0;
}
