// C = A * B in float, row-major, sizes that are multiples of 128: 8 x 8 outputs a thread.
#pragma once

__device__ __forceinline__ void sgemm_tiled(const float* __restrict__ a, const float* __restrict__ b,
                                            float* __restrict__ c, int n) {
    __shared__ float as[2][8][128 + 4], bs[2][8][128];
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    int row = blockIdx.y * 128, column = blockIdx.x * 128;
    const float* a_from = a + size_t(row + t / 2) * n + (t % 2) * 4;
    const float* b_from = b + size_t(t / 32) * n + column + (t % 32) * 4;
    float sum[8][8] = {};
    float4 ra = *reinterpret_cast<const float4*>(a_from);
    float4 rb = *reinterpret_cast<const float4*>(b_from);
    int at = 0;
    for (int k = 0; k < n; k += 8) {
        int ak = (t % 2) * 4, am = t / 2;
        as[at][ak][am] = ra.x;
        as[at][ak + 1][am] = ra.y;
        as[at][ak + 2][am] = ra.z;
        as[at][ak + 3][am] = ra.w;
        *reinterpret_cast<float4*>(&bs[at][t / 32][(t % 32) * 4]) = rb;
        __syncthreads();
        if (k + 8 < n) {
            ra = *reinterpret_cast<const float4*>(a_from + k + 8);
            rb = *reinterpret_cast<const float4*>(b_from + size_t(k + 8) * n);
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            float u[8], v[8];
            *reinterpret_cast<float4*>(u) = *reinterpret_cast<float4*>(&as[at][j][ty * 4]);
            *reinterpret_cast<float4*>(u + 4) = *reinterpret_cast<float4*>(&as[at][j][64 + ty * 4]);
            *reinterpret_cast<float4*>(v) = *reinterpret_cast<float4*>(&bs[at][j][tx * 4]);
            *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<float4*>(&bs[at][j][64 + tx * 4]);
#pragma unroll
            for (int y = 0; y < 8; ++y)
#pragma unroll
                for (int x = 0; x < 8; ++x) sum[y][x] += u[y] * v[x];
        }
        at ^= 1;
    }
#pragma unroll
    for (int y = 0; y < 8; ++y)
#pragma unroll
        for (int x = 0; x < 8; x += 4) {
            size_t to = size_t(row + (y / 4) * 64 + ty * 4 + y % 4) * n + column + (x / 4) * 64 + tx * 4;
            *reinterpret_cast<float4*>(c + to) =
                make_float4(sum[y][x], sum[y][x + 1], sum[y][x + 2], sum[y][x + 3]);
        }
}
