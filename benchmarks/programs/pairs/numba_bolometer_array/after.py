"""Thermal response of a bolometer array scanning the sky.

The sky temperature seen by each detector is integrated over its passband, the
absorbed power drives the nonlinear thermal balance of the island, and the
temperature records are compared with a reference record.
"""
import json
import math
import time

import numpy
numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda, float32

NAME = "numba_bolometer_array"
DETECTORS = 32768
SAMPLES = 1024
NODES = 48
THREADS = 128
WARMUP = 40
BLOCKS = 8
BLOCK_STEPS = 10


@cuda.jit(fastmath=True)
def absorbed_power(sky, nodes, weights, gain, power):
    """Passband integral of the Planck spectrum for every sample and detector."""
    node = cuda.shared.array(NODES, dtype=float32)
    weight = cuda.shared.array(NODES, dtype=float32)
    lane = cuda.threadIdx.x
    if lane < NODES:
        node[lane] = nodes[lane]
        weight[lane] = weights[lane]
    cuda.syncthreads()
    d = cuda.blockIdx.x * cuda.blockDim.x + lane
    t = cuda.blockIdx.y
    inverse = float32(1.0) / sky[t, d]
    total = float32(0.0)
    for k in range(NODES):
        x = node[k] * inverse
        total += weight[k] / (math.exp(x) - float32(1.0))
    power[t, d] = gain[d] * total


@cuda.jit(device=True)
def relax(temp, p, conductance, radiative, bath, rate):
    bath3 = bath * bath * bath
    loss = conductance * (temp - bath) + radiative * (temp * temp * temp - bath3)
    return temp + rate * (p - loss)


@cuda.jit
def island_response(power, conductance, radiative, bath, rate, island, record):
    """Temperature of every island through the scan."""
    d = cuda.grid(1)
    if d >= island.shape[0]:
        return
    g = conductance[d]
    temp = island[d]
    for t in range(0, SAMPLES, 8):
        p0 = power[t, d]
        p1 = power[t + 1, d]
        p2 = power[t + 2, d]
        p3 = power[t + 3, d]
        p4 = power[t + 4, d]
        p5 = power[t + 5, d]
        p6 = power[t + 6, d]
        p7 = power[t + 7, d]
        temp = relax(temp, p0, g, radiative, bath, rate)
        record[t, d] = temp
        temp = relax(temp, p1, g, radiative, bath, rate)
        record[t + 1, d] = temp
        temp = relax(temp, p2, g, radiative, bath, rate)
        record[t + 2, d] = temp
        temp = relax(temp, p3, g, radiative, bath, rate)
        record[t + 3, d] = temp
        temp = relax(temp, p4, g, radiative, bath, rate)
        record[t + 4, d] = temp
        temp = relax(temp, p5, g, radiative, bath, rate)
        record[t + 5, d] = temp
        temp = relax(temp, p6, g, radiative, bath, rate)
        record[t + 6, d] = temp
        temp = relax(temp, p7, g, radiative, bath, rate)
        record[t + 7, d] = temp
    island[d] = temp


@cuda.jit(fastmath=True)
def misfit(record, reference, total):
    """Sum of squared differences over the whole record."""
    partial = cuda.shared.array(THREADS, dtype=float32)
    lane = cuda.threadIdx.x
    d = cuda.blockIdx.x * cuda.blockDim.x + lane
    acc = float32(0.0)
    first = cuda.blockIdx.y * 64
    for k in range(64):
        diff = record[first + k, d] - reference[d]
        acc += diff * diff
    partial[lane] = acc
    cuda.syncthreads()
    span = THREADS // 2
    while span > 0:
        if lane < span:
            partial[lane] += partial[lane + span]
        cuda.syncthreads()
        span //= 2
    if lane == 0:
        cuda.atomic.add(total, 0, partial[0])


def make_sky(rng):
    t = np.arange(SAMPLES, dtype=np.float32)[:, None]
    phase = rng.uniform(0.0, 6.28, DETECTORS).astype(np.float32)[None, :]
    sky = np.sin(np.float32(0.013) * t + phase)
    sky *= np.float32(0.8)
    sky += np.float32(4.0)
    return sky


class Array:
    def __init__(self):
        rng = np.random.default_rng(353)
        x, w = np.polynomial.legendre.leggauss(NODES)
        freq = 3.0 + 2.5 * x
        self.sky = cuda.to_device(make_sky(rng))
        self.nodes = cuda.to_device(freq.astype(np.float32))
        self.weights = cuda.to_device((w * freq ** 3 * 0.02).astype(np.float32))
        self.gain = cuda.to_device(rng.uniform(0.8, 1.2, DETECTORS).astype(np.float32))
        self.conductance = cuda.to_device(rng.uniform(0.9, 1.6, DETECTORS).astype(np.float32))
        self.island = cuda.to_device(np.full(DETECTORS, 0.4, dtype=np.float32))
        self.reference = cuda.to_device(np.full(DETECTORS, 0.5, dtype=np.float32))
        self.power = cuda.device_array((SAMPLES, DETECTORS), dtype=np.float32)
        self.record = cuda.device_array((SAMPLES, DETECTORS), dtype=np.float32)
        self.total = cuda.to_device(np.zeros(1, dtype=np.float32))
        self.radiative = np.float32(0.3)
        self.bath = np.float32(0.3)
        self.rate = np.float32(0.02)

    def scan(self):
        columns = DETECTORS // THREADS
        absorbed_power[(columns, SAMPLES), THREADS](self.sky, self.nodes, self.weights, self.gain,
                                                    self.power)
        island_response[columns, THREADS](self.power, self.conductance, self.radiative, self.bath,
                                          self.rate, self.island, self.record)
        misfit[(columns, SAMPLES // 64), THREADS](self.record, self.reference, self.total)


def main():
    array = Array()
    for _ in range(WARMUP):
        array.scan()
    cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            array.scan()
        cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    island = array.island.copy_to_host()
    row = array.record[SAMPLES // 2].copy_to_host()
    total = float(array.total.copy_to_host()[0])
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS,
                      "us": float(np.median(times)) * 1e6,
                      "result": [float(island.mean()), float(row.mean()), float(row.std()), total]}))


if __name__ == "__main__":
    main()
