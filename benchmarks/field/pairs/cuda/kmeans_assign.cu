// The nearest of 256 centres for each of 2 million points of 16 dimensions.
// tolerance: 0
#include "field.cuh"

const int N = 1 << 21, K = 256, D = 16, EACH = VARIANT == 0 ? 1 : 4;

// Coordinate d of point i is at point[d * N + i].
__global__ void kmeans_assign(const float* __restrict__ point, const float* __restrict__ centre,
                              int* __restrict__ label) {
    int first = blockIdx.x * blockDim.x * EACH + threadIdx.x;
#if VARIANT == 1
    __shared__ float4 shared[K * D / 4];
    for (int i = threadIdx.x; i < K * D / 4; i += blockDim.x)
        shared[i] = reinterpret_cast<const float4*>(centre)[i];
    __syncthreads();
#endif
    float p[EACH][D], best[EACH];
    int who[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        best[e] = 1e30f, who[e] = 0;
#pragma unroll
        for (int d = 0; d < D; ++d) p[e][d] = point[d * N + first + e * blockDim.x];
    }
#pragma unroll 1
    for (int k = 0; k < K; ++k) {
        float c[D], sum[EACH] = {};
#pragma unroll
        for (int d = 0; d < D; ++d) {
#if VARIANT == 0
            c[d] = centre[k * D + d];
#else
            if (d % 4 == 0) *reinterpret_cast<float4*>(c + d) = shared[(k * D + d) / 4];
#endif
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                float t = p[e][d] - c[d];
                sum[e] = fmaf(t, t, sum[e]);
            }
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e)
            if (sum[e] < best[e]) best[e] = sum[e], who[e] = k;
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) label[first + e * blockDim.x] = who[e];
}

int main() {
    float* point = field::filled<float>(size_t(N) * D, [] __device__(size_t i) { return field::unit(i, 1); });
    float* centre = field::filled<float>(K * D, [] __device__(size_t i) { return field::unit(i, 2); });
    int* label = field::zeros<int>(N);
    field::run([&] { kmeans_assign<<<N / 128 / EACH, 128>>>(point, centre, label); });
    return field::report(label, N);
}
