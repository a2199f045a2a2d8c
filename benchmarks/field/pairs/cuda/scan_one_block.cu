// Running sums of 32 million integers.
// tolerance: 0
#include "field.cuh"

__device__ int warp_scan(int v) {
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffffu, v, d);
        if (threadIdx.x % 32 >= d) v += other;
    }
    return v;
}

#if VARIANT == 0
__global__ void scan_one_block(const int* __restrict__ in, int* __restrict__ out, int n,
                               unsigned long long*, int*) {
    __shared__ int totals[32];
    __shared__ int carry;
    if (threadIdx.x == 0) carry = 0;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < n; i += 1024) {
        int v = warp_scan(in[i]);
        if (lane == 31) totals[warp] = v;
        __syncthreads();
        if (warp == 0) totals[lane] = warp_scan(totals[lane]);
        __syncthreads();
        v += carry + (warp > 0 ? totals[warp - 1] : 0);
        out[i] = v;
        __syncthreads();
        if (threadIdx.x == 1023) carry = v;
        __syncthreads();
    }
}
#else
// Decoupled look-back: a tile publishes its own sum, then adds those of the tiles before it. A state
// is a flag (1: own sum, 2: sum up to here) in the high word and a sum in the low one.
__global__ void scan_one_block(const int* __restrict__ in, int* __restrict__ out, int n,
                               unsigned long long* states, int* next) {
    __shared__ int totals[32];
    __shared__ int tile, before;
    if (threadIdx.x == 0) tile = atomicAdd(next, 1);
    __syncthreads();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;  // 8 warps
    const int4* from = reinterpret_cast<const int4*>(in) + size_t(tile) * 1024;
    int4* to = reinterpret_cast<int4*>(out) + size_t(tile) * 1024;
    int4 v[4];
    int sum[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) v[s] = from[s * 256 + threadIdx.x];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
        v[s].y += v[s].x;
        v[s].z += v[s].y;
        v[s].w += v[s].z;
        sum[s] = warp_scan(v[s].w);
        if (lane == 31) totals[s * 8 + warp] = sum[s];
    }
    __syncthreads();
    if (warp == 0) {
        int total = warp_scan(totals[lane]);
        totals[lane] = total;
        int own = __shfl_sync(0xffffffffu, total, 31), prefix = 0;
        volatile unsigned long long* state = states;
        if (lane == 0) state[tile] = ((tile == 0 ? 2ull : 1ull) << 32) | unsigned(own);
        for (int look = tile - 1 - lane; tile > 0; look -= 32) {
            unsigned long long found = 2ull << 32;
            if (look >= 0) {
                do {
                    found = state[look];
                } while ((found >> 32) == 0);
            }
            unsigned complete = __ballot_sync(0xffffffffu, (found >> 32) == 2);
            int last = complete ? __ffs(complete) - 1 : 31;
            int part = lane <= last ? int(unsigned(found)) : 0;
            for (int d = 16; d > 0; d /= 2) part += __shfl_xor_sync(0xffffffffu, part, d);
            prefix += part;
            if (complete) break;
        }
        if (lane == 0) {
            if (tile > 0) state[tile] = (2ull << 32) | unsigned(prefix + own);
            before = prefix;
        }
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < 4; ++s) {
        int k = s * 8 + warp;
        int base = before + (k > 0 ? totals[k - 1] : 0) + sum[s] - v[s].w;
        to[s * 256 + threadIdx.x] =
            make_int4(v[s].x + base, v[s].y + base, v[s].z + base, v[s].w + base);
    }
}
#endif

int main() {
    const int n = 1 << 25, tiles = n / 4096;
    int* in = field::filled<int>(n, [] __device__(size_t i) { return int(field::hash(uint32_t(i)) % 5); });
    int* out = field::zeros<int>(n);
    auto* states = field::zeros<unsigned long long>(tiles);
    int* next = field::zeros<int>(1);
    field::run(
        [&] {
            CHECK(cudaMemset(states, 0, tiles * sizeof(unsigned long long)));
            CHECK(cudaMemset(next, 0, sizeof(int)));
        },
        [&] {
            scan_one_block<<<VARIANT == 0 ? 1 : tiles, VARIANT == 0 ? 1024 : 256>>>(in, out, n,
                                                                                   states, next);
        });
    return field::report(out, n);
}
