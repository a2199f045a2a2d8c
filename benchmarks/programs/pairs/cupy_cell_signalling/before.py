"""Calcium waves over a sheet of cells: four coupled concentrations on a grid, in CuPy."""

import json
import time

import cupy as cp
import numpy as np

SIDE = 192
DT = np.float32(0.01)
SUBSTEPS = 8
WARMUP, STEPS = 5, 50
DIFFUSION = (np.float32(0.6), np.float32(0.3), np.float32(0.05), np.float32(0.0))


def laplacian(a):
    rows = cp.roll(a, 1, 0) + cp.roll(a, -1, 0)
    return rows + cp.roll(a, 1, 1) + cp.roll(a, -1, 1) - np.float32(4) * a


def advance(state):
    """One small step of calcium, messenger, store and gate."""
    calcium, messenger, store, gate = state
    d_calcium, d_messenger, d_store, _ = DIFFUSION
    square = calcium * calcium
    release = gate * messenger * square / (square + np.float32(0.3)) * (store - calcium)
    pump = np.float32(0.9) * square / (square + np.float32(0.1))
    leak = np.float32(0.05) * (store - calcium)
    flow = release + leak - pump
    made = np.float32(0.4) * calcium / (calcium + np.float32(0.5)) + np.float32(0.1)
    new_calcium = calcium + DT * (flow + d_calcium * laplacian(calcium))
    new_messenger = messenger + DT * (
        made - np.float32(0.3) * messenger + d_messenger * laplacian(messenger)
    )
    new_store = store + DT * (d_store * laplacian(store) - np.float32(0.8) * flow)
    recovery = np.float32(0.5) * (np.float32(1) - gate) - np.float32(0.7) * gate * calcium
    new_gate = cp.clip(gate + DT * recovery, 0, 1)
    return new_calcium, new_messenger, new_store, new_gate


def begin(seed):
    rng = np.random.default_rng(seed)
    low = (0.1, 0.2, 1.5, 0.6)
    fields = [(base + 0.3 * rng.random((SIDE, SIDE))).astype(np.float32) for base in low]
    fields[0][SIDE // 2 - 8 : SIDE // 2 + 8, SIDE // 2 - 8 : SIDE // 2 + 8] += 1
    return tuple(cp.asarray(f) for f in fields)


def main():
    state = begin(19)
    device = cp.cuda.Device()
    stamps = []
    for step in range(WARMUP + STEPS):
        device.synchronize()
        stamps.append(time.perf_counter())
        for _ in range(SUBSTEPS):
            state = advance(state)
    device.synchronize()
    stamps.append(time.perf_counter())
    us = float(np.median(np.diff(stamps)[WARMUP:])) * 1e6
    result = [float(cp.mean(field)) for field in state]
    print(f"calcium {result[0]:.5f} after {(WARMUP + STEPS) * SUBSTEPS * float(DT):.1f} s")
    steps = WARMUP + STEPS
    out = {"program": "cupy_cell_signalling", "steps": steps, "us": us, "result": result}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
