"""Price a large grid of European options with Black and Scholes; Greeks for all."""

import json
import statistics
import time

import cupy as cp
import numpy as np

OPTIONS = 20_000_000  # a multiple of 4
RATE = 0.03
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 5


THREADS = 256

KERNEL = cp.RawKernel(
    r"""
// Normal distribution by a well-known polynomial.
__device__ __forceinline__ float cdf(float x) {
    float t = __fdividef(1.0f, 1.0f + 0.2316419f * fabsf(x));
    float poly = t * (0.31938153f + t * (-0.356563782f + t * (1.781477937f
        + t * (-1.821255978f + t * 1.330274429f))));
    float tail = __expf(-0.5f * x * x) * 0.3989422804f * poly;
    return x > 0.0f ? 1.0f - tail : tail;
}

__device__ __forceinline__ void price(float spot, float strike, float years, float sigma,
                                      float rate, float& call, float& delta) {
    float root = sigma * sqrtf(years);
    float d1 = __fdividef(
        __logf(__fdividef(spot, strike)) + (rate + 0.5f * sigma * sigma) * years, root);
    float d2 = d1 - root;
    float discount = strike * __expf(-rate * years);
    delta = cdf(d1);
    call = spot * delta - discount * cdf(d2);
}

// Four options a thread. The spot is multiplied by growth after its use.
extern "C" __global__ void __launch_bounds__(256) options(
    float4* __restrict__ spot, const float4* __restrict__ strike,
    const float4* __restrict__ years, const float4* __restrict__ sigma,
    float4* __restrict__ call, float4* __restrict__ delta,
    float rate, float growth, int quads) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= quads) return;
    float4 s = __ldcs(spot + i), k = __ldcs(strike + i), y = __ldcs(years + i), v = __ldcs(sigma + i);
    float4 c, d;
    price(s.x, k.x, y.x, v.x, rate, c.x, d.x);
    price(s.y, k.y, y.y, v.y, rate, c.y, d.y);
    price(s.z, k.z, y.z, v.z, rate, c.z, d.z);
    price(s.w, k.w, y.w, v.w, rate, c.w, d.w);
    __stcs(call + i, c);
    __stcs(delta + i, d);
    __stcs(spot + i, make_float4(s.x * growth, s.y * growth, s.z * growth, s.w * growth));
}
""",
    "options",
)


def price(spot, strike, years, sigma, growth):
    """Call and delta; afterwards the spot is multiplied by growth, in place."""
    call = cp.empty_like(spot)
    delta = cp.empty_like(spot)
    quads = spot.size // 4
    KERNEL(
        ((quads + THREADS - 1) // THREADS,),
        (THREADS,),
        (
            spot, strike, years, sigma, call, delta,
            np.float32(RATE), np.float32(growth), np.int32(quads),
        ),
    )
    return call, delta


def main():
    rng = cp.random.default_rng(31)
    spot = 50 + 100 * rng.random(OPTIONS, dtype=cp.float32)
    strike = 50 + 100 * rng.random(OPTIONS, dtype=cp.float32)
    years = 0.1 + 2 * rng.random(OPTIONS, dtype=cp.float32)
    sigma = 0.1 + 0.4 * rng.random(OPTIONS, dtype=cp.float32)
    for _ in range(WARMUP):
        call, delta = price(spot, strike, years, sigma, 1.0)
    cp.cuda.Device().synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            call, delta = price(spot, strike, years, sigma, 1.0001)
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    print(f"{OPTIONS / statistics.median(times) / 1e9:.2f} G options/s")
    result = [float(call.mean(dtype=cp.float64)), float(delta.mean(dtype=cp.float64))]
    print(f"mean call {result[0]:.4f}, mean delta {result[1]:.4f}")
    out = {
        "program": "cupy_option_grid",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": result,
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
