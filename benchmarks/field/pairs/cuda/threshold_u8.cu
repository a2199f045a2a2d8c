// Set bytes above a threshold to 255 and the others to 0, 256 MB.
// tolerance: 0
#include "field.cuh"

typedef unsigned char byte;

__global__ void threshold_u8(const byte* __restrict__ in, byte* __restrict__ out, byte limit) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
#if VARIANT == 0
    out[i] = in[i] > limit ? 255 : 0;
#else
    uint4 v = reinterpret_cast<const uint4*>(in)[i];
    const unsigned limits = limit * 0x01010101u;
    v.x = __vcmpgtu4(v.x, limits);
    v.y = __vcmpgtu4(v.y, limits);
    v.z = __vcmpgtu4(v.z, limits);
    v.w = __vcmpgtu4(v.w, limits);
    reinterpret_cast<uint4*>(out)[i] = v;
#endif
}

int main() {
    const size_t n = size_t(1) << 28;
    auto* in = field::filled<byte>(n, [] __device__(size_t i) { return byte(field::hash(uint32_t(i))); });
    auto* out = field::zeros<byte>(n);
    const size_t threads = VARIANT == 0 ? n : n / 16;
    field::run([&] { threshold_u8<<<unsigned(threads / 256), 256>>>(in, out, 100); });
    return field::report(out, n);
}
