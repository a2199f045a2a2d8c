// Helpers of the launcher, not rungs: a delay that lets the CPU run ahead, and the ceilings that rungs are compared with.

// Spins for about `cycles` SM cycles, so that everything a measurement enqueues is waiting before the GPU gets to it.
extern "C" __global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}

// Reads `quads` 16-byte words and keeps nothing: fills the caches with clean lines of a buffer nobody else uses. Writing would leave
// dirty lines, whose write-back would then be charged to the kernel that is timed next.
extern "C" __global__ void read_all(const uint4* data, long long quads, unsigned* never) {
    unsigned seen = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += step) {
        const uint4 v = data[i];
        seen |= v.x | v.y | v.z | v.w;
    }
    if (seen == 1u) *never = seen;  // the buffer holds zeros
}

// Independent FFMA chains, enough to keep every scheduler's FMA pipe busy: 2 * CHAINS * steps * threads FLOP.
extern "C" __global__ void __launch_bounds__(256) ffma_peak(float* out, float a, float b, int steps) {
    float x[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) x[i] = a + threadIdx.x + i;
    for (int s = 0; s < steps; ++s) {
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) x[i] = fmaf(x[i], a, b);
    }
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) sum += x[i];
    if (sum == 0.123456f) out[threadIdx.x] = sum;  // never true: keeps the chains alive
}
