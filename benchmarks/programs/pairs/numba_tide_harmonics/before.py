"""Harmonic analysis of tide-gauge records: project sea level on the tidal constituents
and keep running means of amplitude and phase, one analysis window after another."""
import json
import math
import time
import warnings

import numpy as np

np.row_stack = np.vstack

from numba import cuda, float32
from numba.core.errors import NumbaPerformanceWarning

warnings.simplefilter("ignore", NumbaPerformanceWarning)

GAUGES = 40
SAMPLES = 131072               # six-minute samples of a year and a half
STEP_HOURS = np.float32(0.1)
WINDOWS = 3
THREADS = 256
TWO_PI = np.float32(2 * math.pi)
ZERO = np.float32(0.0)
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 5

# degrees per hour, long period to sixth-diurnal
SPEEDS = np.array([
    0.0410686, 0.0821373, 0.5443747, 1.0158958, 1.0980331, 12.8542862, 13.3986609,
    13.4715145, 13.9430356, 14.4966939, 14.9589314, 15.0, 15.0410686, 15.5854433,
    16.1391017, 27.8953548, 27.9682084, 28.4397295, 28.5125831, 28.9841042, 29.4556253,
    29.5284789, 29.9589333, 30.0, 30.0410667, 30.0821373, 31.0158958, 42.9271398,
    43.4761563, 44.0251729, 57.4238337, 57.9682084, 58.9841042, 60.0, 86.9523127,
    87.9682084, 90.0], dtype=np.float64)
COUNT = len(SPEEDS)


@cuda.jit
def project(level, turns_per_hour, cos_sum, sin_sum):
    """Sums of level * cos and level * sin for each gauge and constituent."""
    part_c = cuda.shared.array(THREADS, float32)
    part_s = cuda.shared.array(THREADS, float32)
    gauge = cuda.blockIdx.x
    tid = cuda.threadIdx.x
    for k in range(COUNT):
        rate = turns_per_hour[k] * STEP_HOURS
        acc_c = ZERO
        acc_s = ZERO
        for i in range(tid, SAMPLES, THREADS):
            phase = np.float32(i) * rate
            angle = TWO_PI * (phase - np.float32(np.int32(phase)))
            y = level[gauge, i]
            acc_c += y * math.cos(angle)
            acc_s += y * math.sin(angle)
        part_c[tid] = acc_c
        part_s[tid] = acc_s
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if tid < half:
                part_c[tid] += part_c[tid + half]
                part_s[tid] += part_s[tid + half]
            cuda.syncthreads()
            half //= 2
        if tid == 0:
            cos_sum[gauge, k] = part_c[0]
            sin_sum[gauge, k] = part_s[0]
        cuda.syncthreads()


@cuda.jit
def blend(cos_sum, sin_sum, amplitude, lag, weight, scale):
    """Running means of amplitude and Greenwich phase lag."""
    n = cuda.grid(1)
    if n < GAUGES * COUNT:
        gauge = n // COUNT
        k = n % COUNT
        c = cos_sum[gauge, k] * scale
        s = sin_sum[gauge, k] * scale
        amplitude[gauge, k] += weight * (math.sqrt(c * c + s * s) - amplitude[gauge, k])
        lag[gauge, k] += weight * (math.atan2(s, c) - lag[gauge, k])


def synth_records(seed=19):
    """Hann-tapered records with random harmonic constants, surge and noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(SAMPLES) * float(STEP_HOURS)
    taper = 1.0 - np.cos(2 * np.pi * (np.arange(SAMPLES) + 0.5) / SAMPLES)
    strong = [8, 12, 16, 19, 23]
    waves = np.stack([f(np.radians(SPEEDS[k]) * t) for k in strong for f in (np.cos, np.sin)])
    windows = []
    for _ in range(WINDOWS):
        coeff = rng.normal(0, 0.5, (GAUGES, len(waves)))
        level = coeff @ waves
        level += 0.1 * rng.standard_normal((GAUGES, SAMPLES), dtype=np.float32)
        level += 0.2 * np.sin(2 * np.pi * t / 130.0 + rng.random((GAUGES, 1)))
        windows.append((level * taper).astype(np.float32))
    return windows


def main():
    windows = [cuda.to_device(w) for w in synth_records()]
    turns = cuda.to_device((SPEEDS / 360.0).astype(np.float32))
    cos_sum = cuda.to_device(np.zeros((GAUGES, COUNT), np.float32))
    sin_sum = cuda.to_device(np.zeros((GAUGES, COUNT), np.float32))
    amplitude = cuda.to_device(np.zeros((GAUGES, COUNT), np.float32))
    lag = cuda.to_device(np.zeros((GAUGES, COUNT), np.float32))
    weight, scale = np.float32(0.1), np.float32(2.0 / SAMPLES)
    grid_blend = (GAUGES * COUNT + THREADS - 1) // THREADS

    def analyse(step):
        project[GAUGES, THREADS](windows[step % WINDOWS], turns, cos_sum, sin_sum)
        blend[grid_blend, THREADS](cos_sum, sin_sum, amplitude, lag, weight, scale)

    step = 0
    for _ in range(WARMUP):
        analyse(step)
        step += 1
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            analyse(step)
            step += 1
        cuda.synchronize()
        times.append((time.perf_counter() - t0) / PER_BLOCK)
    us = 1e6 * sorted(times)[len(times) // 2]
    amp = amplitude.copy_to_host()
    print(json.dumps({"program": "numba_tide_harmonics", "steps": step, "us": round(us, 1),
                      "result": [float(amp.mean()), float(amp[:, 19].mean()), float(amp[:, 12].max())]}))


if __name__ == "__main__":
    main()
