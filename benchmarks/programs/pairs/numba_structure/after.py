"""Structure functions of a hot-wire velocity record (isotropic turbulence).

S_p(lag) = < |u(t + lag) - u(t)|^p > for p = 2, 4, 6 and all lags up to MAX_LAG,
accumulated over the records of a measurement campaign.
"""

import numpy

numpy.row_stack = numpy.vstack

import json
import time

import numpy as np
from numba import cuda, float32

SAMPLES = 1 << 20
MAX_LAG = 1024
RECORDS = 4
THREADS = 256


def make_record(rng, samples):
    """Velocity signal with a -5/3 spectrum and intermittent gusts, unit variance."""
    freq = np.fft.rfftfreq(samples)
    freq[0] = freq[1]
    amplitude = (freq**2 + 1e-8) ** (-5.0 / 12.0)
    phase = rng.uniform(0.0, 2.0 * np.pi, freq.size)
    u = np.fft.irfft(amplitude * np.exp(1j * phase), samples)
    gust = 1.0 + 0.5 * np.sin(2.0 * np.pi * 37.0 * np.arange(samples) / samples)
    u *= gust
    return ((u - u.mean()) / u.std()).astype(np.float32)


@cuda.jit
def structure_functions(u, s2, s4, s6):
    part = cuda.shared.array((3, THREADS), float32)
    k = cuda.blockIdx.x
    t = cuda.threadIdx.x
    lag = k + 1
    pairs = u.size - lag
    a2 = float32(0.0)
    a4 = float32(0.0)
    a6 = float32(0.0)
    for i in range(t, pairs, THREADS):
        d = u[i + lag] - u[i]
        q = d * d
        a2 += q
        a4 += q * q
        a6 += q * q * q
    part[0, t] = a2
    part[1, t] = a4
    part[2, t] = a6
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            part[0, t] += part[0, t + half]
            part[1, t] += part[1, t + half]
            part[2, t] += part[2, t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        scale = float32(1.0) / float32(pairs)
        s2[k] += part[0, 0] * scale
        s4[k] += part[1, 0] * scale
        s6[k] += part[2, 0] * scale


def summarise(s2, s4, s6, count):
    """Scaling exponents in the inertial range and mean flatness."""
    s2, s4, s6 = (s.astype(np.float64) / count for s in (s2, s4, s6))
    lags = np.arange(1, MAX_LAG + 1)
    inertial = (lags >= 8) & (lags <= 256)
    x = np.log(lags[inertial])
    slopes = [np.polyfit(x, np.log(s[inertial]), 1)[0] for s in (s2, s4, s6)]
    flatness = s4 / s2**2
    return float(sum(slopes) + flatness.mean())


def main():
    rng = np.random.default_rng(1941)
    records = [cuda.to_device(make_record(rng, SAMPLES)) for _ in range(RECORDS)]
    sums = [cuda.to_device(np.zeros(MAX_LAG, dtype=np.float32)) for _ in range(3)]
    blocks = MAX_LAG

    def step(k):
        structure_functions[blocks, THREADS](records[k % RECORDS], *sums)

    count = 0
    for _ in range(4):
        step(count)
        count += 1
    cuda.synchronize()

    times = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(8):
            step(count)
            count += 1
        cuda.synchronize()
        times.append((time.perf_counter() - start) / 8)

    result = summarise(*(s.copy_to_host() for s in sums), count)
    print(
        json.dumps(
            {
                "program": "numba_structure",
                "steps": count,
                "us": 1e6 * float(np.median(times)),
                "result": [result],
            }
        )
    )


if __name__ == "__main__":
    main()
