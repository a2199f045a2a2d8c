// A vertical mean of radius 16 over a picture of 8192 x 8192 floats.
// tolerance: 1e-4
#include "field.cuh"

const int W = 8192, H = 8192, R = 16, RUN = 128;

// Row y of the picture is row y + R of `in`, whose margins repeat the picture's.
__global__ void box_blur(const float* __restrict__ in, float* __restrict__ out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
#if VARIANT == 0
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    const float* from = in + y * W + x;
    float sum = 0.0f;
#pragma unroll
    for (int d = 0; d <= 2 * R; ++d) sum += from[d * W];
    out[y * W + x] = sum / (2 * R + 1);
#else
    int first = blockIdx.y * RUN;
    const float* from = in + first * W + x;
    float sum = 0.0f;
    for (int d = 0; d < 2 * R; ++d) sum += from[d * W];
#pragma unroll 8
    for (int k = 0; k < RUN; ++k) {
        sum += from[(k + 2 * R) * W];
        out[(first + k) * W + x] = sum / (2 * R + 1);
        sum -= from[k * W];
    }
#endif
}

int main() {
    const size_t n = size_t(W) * H;
    float* in = field::filled<float>(n + 2 * R * W, [] __device__(size_t i) {
        size_t y = i / W < R ? 0 : i / W - R;
        return field::unit(i % W + W * (y < H ? y : H - 1));
    });
    float* out = field::zeros<float>(n);
    const dim3 block = VARIANT == 0 ? dim3(32, 8) : dim3(128);
    const dim3 grid = VARIANT == 0 ? dim3(W / 32, H / 8) : dim3(W / 128, H / RUN);
    field::run([&] { box_blur<<<grid, block>>>(in, out); });
    return field::report(out, n);
}
