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


cells = cp.ElementwiseKernel(
    "raw float32 c, raw float32 p, raw float32 s, raw float32 g, int32 side, float32 dt, "
    "float32 dc, float32 dp, float32 ds",
    "float32 c1, float32 p1, float32 s1, float32 g1",
    """
    int cy = i / side, cx = i % side;
    int up = (cy + side - 1) % side * side + cx, down = (cy + 1) % side * side + cx;
    int left = cy * side + (cx + side - 1) % side, right = cy * side + (cx + 1) % side;
    float ca = c[i], ms = p[i], st = s[i], ga = g[i];
    float lap_c = c[up] + c[down] + c[left] + c[right] - 4.0f * ca;
    float lap_p = p[up] + p[down] + p[left] + p[right] - 4.0f * ms;
    float lap_s = s[up] + s[down] + s[left] + s[right] - 4.0f * st;
    float sq = ca * ca;
    float flow = ga * ms * sq / (sq + 0.3f) * (st - ca) + 0.05f * (st - ca) - 0.9f * sq / (sq + 0.1f);
    c1 = ca + dt * (flow + dc * lap_c);
    p1 = ms + dt * (0.4f * ca / (ca + 0.5f) + 0.1f - 0.3f * ms + dp * lap_p);
    s1 = st + dt * (ds * lap_s - 0.8f * flow);
    float ga1 = ga + dt * (0.5f * (1.0f - ga) - 0.7f * ga * ca);
    g1 = ga1 < 0.0f ? 0.0f : (ga1 > 1.0f ? 1.0f : ga1);
    """,
    "cells",
)


def advance(state):
    """One small step of calcium, messenger, store and gate."""
    flat = cells(*state, np.int32(SIDE), DT, *DIFFUSION[:3], size=SIDE * SIDE)
    return tuple(f.reshape(SIDE, SIDE) for f in flat)


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
