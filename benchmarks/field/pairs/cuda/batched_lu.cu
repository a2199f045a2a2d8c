// LU factors of 65,536 matrices of 32 x 32, a warp a matrix, a lane a row.
// tolerance: 1e-4
#include "field.cuh"

const int LD = VARIANT == 0 ? 32 : 33;

__global__ void batched_lu(const float* __restrict__ in, float* __restrict__ out) {
    __shared__ float all[4][32 * LD];
    int lane = threadIdx.x % 32;
    float* m = all[threadIdx.x / 32];
    size_t base = (size_t(blockIdx.x) * 4 + threadIdx.x / 32) * 1024;
    for (int r = 0; r < 32; ++r) m[r * LD + lane] = in[base + r * 32 + lane];
    __syncwarp();
    for (int k = 0; k < 31; ++k) {
        if (lane > k) {
            float f = m[lane * LD + k] / m[k * LD + k];
            m[lane * LD + k] = f;
            for (int j = k + 1; j < 32; ++j) m[lane * LD + j] -= f * m[k * LD + j];
        }
        __syncwarp();
    }
    for (int r = 0; r < 32; ++r) out[base + r * 32 + lane] = m[r * LD + lane];
}

int main() {
    const int matrices = 1 << 16;
    float* in = field::filled<float>(size_t(matrices) * 1024, [] __device__(size_t i) {
        return field::unit(i) + ((i / 32) % 32 == i % 32 ? 32.0f : 0.0f);
    });
    float* out = field::zeros<float>(size_t(matrices) * 1024);
    field::run([&] { batched_lu<<<matrices / 4, 128>>>(in, out); });
    return field::report(out, size_t(matrices) * 1024);
}
