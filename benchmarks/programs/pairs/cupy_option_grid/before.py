"""Price a large grid of European options with Black and Scholes; Greeks for all."""

import json
import math
import statistics
import time

import cupy as cp

OPTIONS = 20_000_000
RATE = 0.03
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 5


def cdf(x):
    """Normal distribution by a well-known polynomial."""
    t = 1.0 / (1.0 + 0.2316419 * cp.abs(x))
    poly = t * (
        0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    tail = cp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) * poly
    return cp.where(x > 0, 1.0 - tail, tail)


def price(spot, strike, years, sigma):
    root = sigma * cp.sqrt(years)
    d1 = (cp.log(spot / strike) + (RATE + 0.5 * sigma * sigma) * years) / root
    d2 = d1 - root
    discount = strike * cp.exp(-RATE * years)
    delta = cdf(d1)
    call = spot * delta - discount * cdf(d2)
    return call, delta


def main():
    rng = cp.random.default_rng(31)
    spot = 50 + 100 * rng.random(OPTIONS, dtype=cp.float32)
    strike = 50 + 100 * rng.random(OPTIONS, dtype=cp.float32)
    years = 0.1 + 2 * rng.random(OPTIONS, dtype=cp.float32)
    sigma = 0.1 + 0.4 * rng.random(OPTIONS, dtype=cp.float32)
    for _ in range(WARMUP):
        call, delta = price(spot, strike, years, sigma)
    cp.cuda.Device().synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            call, delta = price(spot, strike, years, sigma)
            spot *= 1.0001
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
