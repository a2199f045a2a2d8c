"""Calibrates a two-store runoff model for many small upland catchments on daily records.

Each iteration proposes new parameters for every catchment, runs the model over the record and keeps
the proposals that lower the squared error of the simulated discharge.
"""
import json
import math
import time

import numpy
import numpy as np

numpy.row_stack = numpy.vstack
from numba import cuda

PROGRAM = "numba_moor_runoff"
CATCHMENTS = 163840
DAYS = 365
THREADS = 256
WARMUP = 300
BLOCKS = 10
PER_BLOCK = 10

ZERO = np.float32(0.0)
ONE = np.float32(1.0)
HALF = np.float32(0.5)
FLOOR = np.float32(0.02)
CEILING = np.float32(0.95)
SPREAD = np.float32(0.08)
UNIT = np.float32(1.0 / 65536.0)
CAPACITY = np.float32(1.0 / 120.0)
BASE_SHARE = np.float32(0.3)


@cuda.jit(device=True)
def advance_stores(soil, ground, rain, demand, fast, slow):
    wetness = min(soil * CAPACITY, ONE)
    overflow = rain * wetness * fast
    soil = max(soil + rain - overflow - demand * wetness, ZERO)
    drained = soil * slow * BASE_SHARE
    soil = soil - drained
    ground = ground + drained
    base = ground * slow
    ground = ground - base
    return soil, ground, overflow + base


@cuda.jit
def generate_discharge(rain, demand, truth, discharge):
    catchment = cuda.grid(1)
    if catchment >= CATCHMENTS:
        return
    fast = truth[0, catchment]
    slow = truth[1, catchment]
    soil = np.float32(60.0)
    ground = np.float32(20.0)
    for day in range(DAYS):
        soil, ground, flow = advance_stores(soil, ground, rain[catchment, day], demand[catchment, day], fast, slow)
        discharge[catchment, day] = flow


@cuda.jit
def propose(current, proposal, iteration):
    catchment = cuda.grid(1)
    if catchment >= CATCHMENTS:
        return
    for parameter in range(2):
        mixed = (catchment * 2 + parameter + iteration * 7919) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
        noise = np.float32((mixed >> 8) & 0xFFFF) * UNIT - HALF
        value = current[parameter, catchment] + SPREAD * noise
        proposal[parameter, catchment] = min(max(value, FLOOR), CEILING)


@cuda.jit
def evaluate(rain, demand, discharge, proposal, current, best):
    catchment = cuda.grid(1)
    if catchment >= CATCHMENTS:
        return
    fast = proposal[0, catchment]
    slow = proposal[1, catchment]
    soil = np.float32(60.0)
    ground = np.float32(20.0)
    error = ZERO
    for day in range(DAYS):
        soil, ground, flow = advance_stores(soil, ground, rain[catchment, day], demand[catchment, day], fast, slow)
        miss = flow - discharge[catchment, day]
        error += miss * miss
    if error < best[catchment]:
        best[catchment] = error
        current[0, catchment] = fast
        current[1, catchment] = slow


def daily_records(rng):
    rain = rng.random((CATCHMENTS, DAYS), dtype=np.float32)
    rain -= np.float32(0.6)
    np.maximum(rain, ZERO, out=rain)
    rain *= np.float32(30.0)
    season = (1.6 - 1.2 * np.cos(2 * math.pi * np.arange(DAYS) / DAYS)).astype(np.float32)
    exposure = rng.uniform(0.7, 1.3, CATCHMENTS).astype(np.float32)
    demand = exposure[:, None] * season[None, :]
    return rain, demand


def main():
    rng = np.random.default_rng(41)
    rain_host, demand_host = daily_records(rng)
    truth = rng.uniform(0.1, 0.6, (2, CATCHMENTS)).astype(np.float32)
    rain = cuda.to_device(rain_host)
    demand = cuda.to_device(demand_host)
    discharge = cuda.device_array(rain_host.shape, dtype=np.float32)
    current = cuda.to_device(np.full((2, CATCHMENTS), 0.35, dtype=np.float32))
    proposal = cuda.device_array((2, CATCHMENTS), dtype=np.float32)
    best = cuda.to_device(np.full(CATCHMENTS, 1e30, dtype=np.float32))

    grid = (CATCHMENTS + THREADS - 1) // THREADS
    generate_discharge[grid, THREADS](rain, demand, cuda.to_device(truth), discharge)

    def iterate(iteration):
        propose[grid, THREADS](current, proposal, iteration)
        evaluate[grid, THREADS](rain, demand, discharge, proposal, current, best)

    iteration = 0
    for _ in range(WARMUP):
        iterate(iteration)
        iteration += 1
    cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            iterate(iteration)
            iteration += 1
        cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    errors = best.copy_to_host().astype(np.float64)
    fitted = current.copy_to_host().astype(np.float64)
    result = [float(np.sqrt(errors / DAYS).mean()), float(fitted[0].mean()), float(fitted[1].mean())]
    print(json.dumps({"program": PROGRAM, "steps": iteration, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
