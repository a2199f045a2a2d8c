// Shade 16 million hits of eight materials.
// tolerance: 1e-5
#include "field.cuh"

const int N = 1 << 24;

__device__ float shade(int material, float4 h) {
    float v = 0.0f;
    switch (material) {
        case 0:  // matte
            for (int k = 1; k <= 24; ++k) v += fmaxf(h.x * k - h.y, 0.0f) * 0.01f;
            return v;
        case 1:  // glossy
            for (int k = 1; k <= 12; ++k) v += __powf(h.x + 0.1f, float(k)) * h.z;
            return v;
        case 2:  // glass
            for (int k = 1; k <= 12; ++k) v += sqrtf(h.x * h.x + k * h.y) / (k + h.z);
            return v;
        case 3:  // marble
            for (int k = 1; k <= 12; ++k) v += __sinf(h.x * k + h.y) * __fdividef(h.w, k);
            return v;
        case 4:  // metal
            for (int k = 1; k <= 12; ++k) v += __expf(-h.x * k) * __fdividef(h.y, h.z + k);
            return v;
        case 5:  // wood
            for (int k = 1; k <= 12; ++k) v += fabsf(__cosf(h.z * k + v));
            return v;
        case 6:  // skin
            for (int k = 1; k <= 12; ++k) v = v * h.w + __logf(h.x + k);
            return v;
        default:  // cloth
            for (int k = 1; k <= 12; ++k) v += rsqrtf(h.x + k * h.y + 0.5f);
            return v;
    }
}

__global__ void material_switch(const int* __restrict__ material, const float4* __restrict__ hit,
                                float* __restrict__ out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = shade(material[i], hit[i]);
}

int main() {
    // Hit i of the list is hit id[i] of the picture.
    std::vector<unsigned> order(N);
    unsigned next[9] = {};
    for (int i = 0; i < N; ++i) ++next[field::hash(i) % 8 + 1];
    for (int m = 1; m < 9; ++m) next[m] += next[m - 1];
    for (int i = 0; i < N; ++i) order[VARIANT == 0 ? i : next[field::hash(i) % 8]++] = i;
    unsigned* id = field::copied(order);
    int* material = field::filled<int>(N, [=] __device__(size_t i) { return int(field::hash(id[i]) % 8); });
    auto* hit = field::filled<float4>(N, [=] __device__(size_t i) {
        unsigned p = id[i];
        return make_float4(field::unit(p, 1), field::unit(p, 2), field::unit(p, 3), field::unit(p, 4));
    });
    float* out = field::zeros<float>(N);
    field::run([&] { material_switch<<<N / 256, 256>>>(material, hit, out); });
    float* picture = field::zeros<float>(N);
    field::filled<int>(N, [=] __device__(size_t i) {
        picture[id[i]] = out[i];
        return 0;
    });
    return field::report(picture, N);
}
