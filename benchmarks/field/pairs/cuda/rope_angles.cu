// Rotary embedding of 2048 places with 8 rows of 32 heads of 128 floats.
// tolerance: 1e-3
#include "field.cuh"

const int ROWS = 8, PLACES = 2048, HEADS = 32, PAIRS = 64;

// Pair p of head h at place s of row r is in[((r * PLACES + s) * HEADS + h) * PAIRS + p].
__global__ void rope_angles(const float2* __restrict__ in, const float2* __restrict__ turn,
                            float2* __restrict__ out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int p = i % PAIRS, s = i / (PAIRS * HEADS) % PLACES;
    float2 v = in[i];
#if VARIANT == 0
    float sine, cosine;
    sincosf(s * powf(10000.0f, -float(p) / PAIRS), &sine, &cosine);
#else
    float2 t = turn[s * PAIRS + p];
    float cosine = t.x, sine = t.y;
#endif
    out[i] = make_float2(v.x * cosine - v.y * sine, v.x * sine + v.y * cosine);
}

int main() {
    const int n = ROWS * PLACES * HEADS * PAIRS;
    auto* in = field::filled<float2>(n, [] __device__(size_t i) {
        return make_float2(field::unit(i, 1), field::unit(i, 2));
    });
    auto* turn = field::filled<float2>(PLACES * PAIRS, [] __device__(size_t i) {
        float angle = float(i / PAIRS) * powf(10000.0f, -float(i % PAIRS) / PAIRS);
        return make_float2(cosf(angle), sinf(angle));
    });
    auto* out = field::zeros<float2>(n);
    field::run([&] { rope_angles<<<n / 256, 256>>>(in, turn, out); });
    return field::report(reinterpret_cast<float*>(out), 2 * size_t(n));
}
