// Softmax of 264 rows of a million floats.
// tolerance: 1e-3
#include "field.cuh"

const int ROWS = 264, C4 = 1 << 18;  // float4 in a row

struct State {
    float largest, sum;
};

__device__ State joined(State a, State b) {
    float m = fmaxf(a.largest, b.largest);
    return {m, a.sum * __expf(a.largest - m) + b.sum * __expf(b.largest - m)};
}

// The joined state of all 1024 threads, in each of them.
__device__ State of_block(State s) {
    __shared__ State part[32];
    __syncthreads();
    for (int d = 16; d > 0; d /= 2)
        s = joined(s, {__shfl_xor_sync(0xffffffffu, s.largest, d), __shfl_xor_sync(0xffffffffu, s.sum, d)});
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = part[threadIdx.x % 32];
    for (int d = 16; d > 0; d /= 2)
        s = joined(s, {__shfl_xor_sync(0xffffffffu, s.largest, d), __shfl_xor_sync(0xffffffffu, s.sum, d)});
    return s;
}

__global__ void __launch_bounds__(1024, 2)
    softmax_passes(const float4* __restrict__ in, float4* __restrict__ out) {
    const float4* x = in + size_t(blockIdx.x) * C4;
    float4* y = out + size_t(blockIdx.x) * C4;
    State s = {-1e30f, 0.0f};
#if VARIANT == 0
#pragma unroll 4
    for (int c = threadIdx.x; c < C4; c += 1024) {
        float4 v = x[c];
        s.largest = fmaxf(s.largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
    s.largest = of_block(s).largest;
#pragma unroll 4
    for (int c = threadIdx.x; c < C4; c += 1024) {
        float4 v = x[c];
        s.sum += __expf(v.x - s.largest) + __expf(v.y - s.largest) + __expf(v.z - s.largest) +
                 __expf(v.w - s.largest);
    }
    s = of_block(s);
#else
#pragma unroll 4
    for (int c = threadIdx.x; c < C4; c += 1024) {
        float4 v = x[c];
        float m = fmaxf(s.largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
        s.sum = s.sum * __expf(s.largest - m) + __expf(v.x - m) + __expf(v.y - m) + __expf(v.z - m) +
                __expf(v.w - m);
        s.largest = m;
    }
    s = of_block(s);
#endif
    float scale = 1.0f / s.sum;
#pragma unroll 4
    for (int c = threadIdx.x; c < C4; c += 1024) {
        float4 v = x[c];
        y[c] = make_float4(__expf(v.x - s.largest) * scale, __expf(v.y - s.largest) * scale,
                           __expf(v.z - s.largest) * scale, __expf(v.w - s.largest) * scale);
    }
}

int main() {
    const size_t n = size_t(ROWS) * C4;
    auto* in = field::filled<float4>(n, [] __device__(size_t i) {
        return make_float4(field::unit(i, 1) * 8.0f, field::unit(i, 2) * 8.0f, field::unit(i, 3) * 8.0f,
                           field::unit(i, 4) * 8.0f);
    });
    auto* out = field::zeros<float4>(n);
    field::run([&] { softmax_passes<<<ROWS, 1024>>>(in, out); });
    return field::report(reinterpret_cast<float*>(out), 4 * n);
}
