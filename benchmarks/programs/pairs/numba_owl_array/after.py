"""Bearing estimation for calling owls with a small microphone array.

Each step takes one analysis window of the night recording, steers the array
to a set of azimuths and stores the delay-and-sum power of every azimuth.
"""
import json
import math
import time

import numpy
numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda, float32, int32

NAME = "numba_owl_array"
SAMPLE_RATE = 48000.0
SOUND_SPEED = 338.0
MICROPHONES = 12
RADIUS = 1.4
AZIMUTHS = 36
WINDOW = 524288
HOP = 16384
MARGIN = 512
THREADS = 256
SEGMENTS = 32

WARMUP = 20
BLOCKS = 10
STEPS_PER_BLOCK = 10
WINDOWS = WARMUP + BLOCKS * STEPS_PER_BLOCK


def array_geometry():
    angle = 2.0 * np.pi * np.arange(MICROPHONES) / MICROPHONES
    return np.stack([RADIUS * np.cos(angle), RADIUS * np.sin(angle)], axis=1)


def steering_delays(positions, azimuths):
    direction = np.stack([np.cos(azimuths), np.sin(azimuths)], axis=1)
    seconds = -direction @ positions.T / SOUND_SPEED
    return np.rint(seconds * SAMPLE_RATE).astype(np.int32)


def owl_call(length, rng):
    t = np.arange(length) / SAMPLE_RATE
    chirp = np.sin(2.0 * np.pi * (380.0 * t + 25.0 * np.sin(2.0 * np.pi * 3.0 * t)))
    gate = (np.sin(2.0 * np.pi * 0.35 * t + rng.uniform(0.0, 6.0)) > 0.2).astype(np.float64)
    return (0.6 * chirp * gate).astype(np.float32)


def night_recording(positions, rng):
    length = WINDOW + WINDOWS * HOP + 2 * MARGIN
    records = rng.standard_normal((MICROPHONES, length), dtype=np.float32)
    source = owl_call(length + 2 * MARGIN, rng)
    bearing = np.array([math.radians(130.0)])
    arrival = steering_delays(positions, bearing)[0]
    for m in range(MICROPHONES):
        first = MARGIN - int(arrival[m])
        records[m] += source[first:first + length]
    return records


@cuda.jit
def beam_power(records, start, delays, power, window_index):
    lags = cuda.shared.array(MICROPHONES, int32)
    sums = cuda.shared.array(THREADS, float32)
    azimuth = cuda.blockIdx.x
    tid = cuda.threadIdx.x

    if tid < MICROPHONES:
        lags[tid] = delays[azimuth, tid]
    cuda.syncthreads()

    energy = float32(0.0)
    first = cuda.blockIdx.y * THREADS + tid
    for t in range(first, WINDOW, THREADS * SEGMENTS):
        beam = float32(0.0)
        for m in range(MICROPHONES):
            beam += records[m, start + t + lags[m]]
        energy += beam * beam

    sums[tid] = energy
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if tid < half:
            sums[tid] += sums[tid + half]
        cuda.syncthreads()
        half //= 2

    if tid == 0:
        cuda.atomic.add(power, (window_index, azimuth), sums[0])


def main():
    rng = np.random.default_rng(4127)
    positions = array_geometry()
    azimuths = 2.0 * np.pi * np.arange(AZIMUTHS) / AZIMUTHS
    records = cuda.to_device(night_recording(positions, rng))
    delays = cuda.to_device(steering_delays(positions, azimuths))
    power = cuda.to_device(np.zeros((WINDOWS, AZIMUTHS), dtype=np.float32))

    grid = (AZIMUTHS, SEGMENTS)

    def step(index):
        beam_power[grid, THREADS](records, MARGIN + index * HOP, delays, power, index)

    index = 0
    for _ in range(WARMUP):
        step(index)
        index += 1
    cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(index)
            index += 1
        cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    spectrum = power.copy_to_host().astype(np.float64) / WINDOW
    mean_spectrum = spectrum.mean(axis=0)
    best = int(np.argmax(mean_spectrum))
    print(json.dumps({
        "program": NAME,
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": float(np.median(times) * 1e6),
        "result": [
            float(mean_spectrum.sum()),
            float(mean_spectrum[best]),
            float(360.0 * best / AZIMUTHS),
        ],
    }))


if __name__ == "__main__":
    main()
