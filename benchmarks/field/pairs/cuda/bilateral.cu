// A bilateral filter of radius 5 over a grey picture of 2048 x 2048.
// tolerance: 1e-4
#include "field.cuh"

const int W = 2048, H = 2048, R = 5;

__global__ void bilateral(const float* __restrict__ in, float* __restrict__ out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float centre = in[y * W + x], sum = 0, total = 0;
    for (int dy = -R; dy <= R; ++dy)
        for (int dx = -R; dx <= R; ++dx) {
            int nx = min(max(x + dx, 0), W - 1), ny = min(max(y + dy, 0), H - 1);
            float v = in[ny * W + nx], d = v - centre;
#if VARIANT == 0
            float weight = exp(-(dx * dx + dy * dy) / (2.0 * 3.0 * 3.0) - d * d / (2.0 * 0.2 * 0.2));
#else
            float weight = __expf((dx * dx + dy * dy) * (-1.0f / 18.0f) - d * d * 12.5f);
#endif
            sum += weight * v;
            total += weight;
        }
    out[y * W + x] = sum / total;
}

int main() {
    float* in = field::filled<float>(W * H, [] __device__(size_t i) { return field::unit(i); });
    float* out = field::zeros<float>(W * H);
    field::run([&] { bilateral<<<dim3(W / 32, H / 8), dim3(32, 8)>>>(in, out); });
    return field::report(out, W * H);
}
