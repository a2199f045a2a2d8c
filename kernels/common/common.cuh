// Shared by every ladder: index arithmetic and 16-byte accesses, each defined once.
#pragma once

#define WARP_SIZE 32

template <typename T>
__host__ __device__ constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }

// True where a pointer may be read or written 16 bytes at a time.
__device__ __forceinline__ bool is_aligned_16(const void* p) {
    return (reinterpret_cast<unsigned long long>(p) & 15ull) == 0;
}

__device__ __forceinline__ float4 load_float4(const float* p) {
    return *reinterpret_cast<const float4*>(p);
}

__device__ __forceinline__ void store_float4(float* p, float4 v) {
    *reinterpret_cast<float4*>(p) = v;
}

// Four consecutive floats of a row from which `remaining` are valid; the rest read as zero.
// `vector` says that the row is 16-byte aligned, so that a whole quartet is one LDG.E.128.
__device__ __forceinline__ float4 load_float4_guarded(const float* p, int remaining, bool vector) {
    if (vector && remaining >= 4) return load_float4(p);
    float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
    if (remaining > 0) v.x = p[0];
    if (remaining > 1) v.y = p[1];
    if (remaining > 2) v.z = p[2];
    if (remaining > 3) v.w = p[3];
    return v;
}

__device__ __forceinline__ void store_float4_guarded(float* p, float4 v, int remaining, bool vector) {
    if (vector && remaining >= 4) { store_float4(p, v); return; }
    if (remaining > 0) p[0] = v.x;
    if (remaining > 1) p[1] = v.y;
    if (remaining > 2) p[2] = v.z;
    if (remaining > 3) p[3] = v.w;
}
