// One step of a 25-point star stencil (radius 4) on a grid of 512 x 512 x 512, as in wave propagation.
// tolerance: 1e-4
#include "field.cuh"

const int N = 512, R = 4;
__constant__ float weight[R + 1];

__global__ void stencil_star(const float* __restrict__ in, float* __restrict__ out) {
    const size_t plane = size_t(N) * N;
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
#if VARIANT == 0
    int z = blockIdx.z + R;
    if (x < R || y < R || x >= N - R || y >= N - R) return;
    size_t i = z * plane + size_t(y) * N + x;
    float sum = weight[0] * in[i];
    for (int r = 1; r <= R; ++r)
        sum += weight[r] * (in[i - r] + in[i + r] + in[i - r * N] + in[i + r * N] +
                            in[i - r * plane] + in[i + r * plane]);
    out[i] = sum;
#else
    // The column of a thread is in registers, the plane in shared memory.
    __shared__ float tile[16 + 2 * R][32 + 2 * R];
    const int depth = (N - 2 * R) / 4;
    int first = R + blockIdx.z * depth;
    bool inside = x >= R && y >= R && x < N - R && y < N - R;
    size_t i = first * plane + size_t(y) * N + x;
    float column[2 * R + 1];
#pragma unroll
    for (int r = 0; r < 2 * R; ++r) column[r + 1] = in[i + (r - R) * plane];
    for (int z = 0; z < depth; ++z, i += plane) {
#pragma unroll
        for (int r = 0; r < 2 * R; ++r) column[r] = column[r + 1];
        column[2 * R] = in[i + R * plane];
        __syncthreads();
        int left = int(blockIdx.x * blockDim.x) - R, top = int(blockIdx.y * blockDim.y) - R;
        tile[threadIdx.y + R][threadIdx.x + R] = column[R];
        if (threadIdx.x < 2 * R) {
            int c = threadIdx.x < R ? threadIdx.x : threadIdx.x + 32;
            int gx = min(max(left + c, 0), N - 1);
            tile[threadIdx.y + R][c] = in[i - x + gx];
        }
        if (threadIdx.y < 2 * R) {
            int c = threadIdx.y < R ? threadIdx.y : threadIdx.y + 16;
            int gy = min(max(top + c, 0), N - 1);
            tile[c][threadIdx.x + R] = in[i + (gy - y) * N];
        }
        __syncthreads();
        float sum = weight[0] * column[R];
#pragma unroll
        for (int r = 1; r <= R; ++r) {
            int ty = threadIdx.y + R, tx = threadIdx.x + R;
            sum += weight[r] * (tile[ty][tx - r] + tile[ty][tx + r] + tile[ty - r][tx] +
                                tile[ty + r][tx] + column[R - r] + column[R + r]);
        }
        if (inside) out[i] = sum;
    }
#endif
}

int main() {
    const size_t n = size_t(N) * N * N;
    float* in = field::filled<float>(n, [] __device__(size_t i) { return field::unit(i); });
    float* out = field::zeros<float>(n);
    const float w[R + 1] = {0.5f, 0.2f, 0.1f, 0.05f, 0.02f};
    CHECK(cudaMemcpyToSymbol(weight, w, sizeof w));
    field::run([&] {
#if VARIANT == 0
        stencil_star<<<dim3(N / 32, N / 8, N - 2 * R), dim3(32, 8)>>>(in, out);
#else
        stencil_star<<<dim3(N / 32, N / 16, 4), dim3(32, 16)>>>(in, out);
#endif
    });
    return field::report(out, n);
}
