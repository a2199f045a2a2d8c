"""Black-Scholes prices of 16 million European calls and puts."""

import math

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import F32, cuda

COUNT = 1 << 24
HALF, ONE, ROOT_HALF = F32(0.5), F32(1), F32(0.7071067811865476)
RATE, VOLATILITY = F32(0.02), F32(0.3)


@cuda.jit
def prices_literal(spot, strike, years, call, put):
    i = cuda.grid(1)
    if i < spot.size:
        s, x, t = spot[i], strike[i], years[i]
        spread = 0.3 * math.sqrt(t)
        d1 = (math.log(s / x) + (0.02 + 0.5 * 0.3 * 0.3) * t) / spread
        d2 = d1 - spread
        n1 = 0.5 + 0.5 * math.erf(d1 * 0.7071067811865476)
        n2 = 0.5 + 0.5 * math.erf(d2 * 0.7071067811865476)
        discounted = x * math.exp(-0.02 * t)
        call[i] = s * n1 - discounted * n2
        put[i] = discounted * (1.0 - n2) - s * (1.0 - n1)


@cuda.jit
def prices_single(spot, strike, years, call, put):
    i = cuda.grid(1)
    if i < spot.size:
        s, x, t = spot[i], strike[i], years[i]
        spread = VOLATILITY * math.sqrt(t)
        d1 = (math.log(s / x) + (RATE + HALF * VOLATILITY * VOLATILITY) * t) / spread
        d2 = d1 - spread
        n1 = HALF + HALF * math.erf(d1 * ROOT_HALF)
        n2 = HALF + HALF * math.erf(d2 * ROOT_HALF)
        discounted = x * math.exp(-RATE * t)
        call[i] = s * n1 - discounted * n2
        put[i] = discounted * (ONE - n2) - s * (ONE - n1)


def inputs():
    rng = numpy.random.default_rng(3)

    def between(low, high):
        return cuda.to_device(rng.random(COUNT, dtype="float32") * F32(high - low) + F32(low))

    return between(5, 30), between(5, 30), between(0.25, 10)


def make(variant, spot, strike, years):
    kernel = prices_literal if variant == "before" else prices_single
    call, put = (cuda.device_array(COUNT, "float32") for _ in range(2))
    return Work(
        lambda: kernel[COUNT // 256, 256](spot, strike, years, call, put),
        lambda: (call.copy_to_host()[::3], put.copy_to_host()[::3]),
    )


PAIR = Pair(inputs, make, Launch("prices_"), tolerance=1e-3)
