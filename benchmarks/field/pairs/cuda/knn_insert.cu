// The 8 nearest of 4096 points for each of 524,288 queries.
// tolerance: 1e-5
#include "field.cuh"

const int K = 8;

__global__ void knn_insert(const float4* __restrict__ query, const float4* __restrict__ point,
                           int points, float* __restrict__ result) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 q = query[i];
    float best[K];
    int who[K];
#pragma unroll
    for (int k = 0; k < K; ++k) best[k] = 1e30f, who[k] = -1;
    for (int p = 0; p < points; ++p) {
        float4 c = point[p];
        float dx = c.x - q.x, dy = c.y - q.y, dz = c.z - q.z;
        float d = dx * dx + dy * dy + dz * dz;
        if (d >= best[K - 1]) continue;
#if VARIANT == 0
        int k = K - 1;
        while (k > 0 && best[k - 1] > d) {
            best[k] = best[k - 1];
            who[k] = who[k - 1];
            --k;
        }
        best[k] = d;
        who[k] = p;
#else
        int w = p;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            bool less = d < best[k];
            float old = best[k];
            int was = who[k];
            best[k] = less ? d : old;
            who[k] = less ? w : was;
            d = less ? old : d;
            w = less ? was : w;
        }
#endif
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < K; ++k) sum += best[k] * (k + 1) + who[k];
    result[i] = sum;
}

int main() {
    const int queries = 1 << 19, points = 4096;
    auto make = [] __device__(size_t i) {
        return make_float4(field::unit(i, 1), field::unit(i, 2), field::unit(i, 3), 0.0f);
    };
    auto* query = field::filled<float4>(queries, make);
    auto* point = field::filled<float4>(points, [] __device__(size_t i) {
        return make_float4(field::unit(i, 4), field::unit(i, 5), field::unit(i, 6), 0.0f);
    });
    float* result = field::zeros<float>(queries);
    field::run([&] { knn_insert<<<queries / 128, 128>>>(query, point, points, result); });
    return field::report(result, queries);
}
