// Helpers of the launcher, not rungs: a delay that lets the CPU run ahead, and the ceilings that rungs are held against.

// Spins for about `cycles` SM cycles, so that everything a measurement enqueues is waiting before the GPU gets to it.
extern "C" __global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
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
