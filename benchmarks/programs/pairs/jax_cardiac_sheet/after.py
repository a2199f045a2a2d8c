"""Paced sheets of heart tissue seen by an optical mapping camera.

An ensemble of sheets with different conduction follows the Aliev-Panfilov
model; after every frame interval the camera image is formed from the fields
blurred at several depths below the surface.
"""
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.12")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "jax_cardiac_sheet"
SHEETS = 16
SIZE = 256
SUBSTEPS = 12
DT = 0.02
K = 8.0
A = 0.1
EPSILON = 0.01
MU1 = 0.07
MU2 = 0.3
DEPTHS = 8
WARMUP = 10
BLOCKS = 10
STEPS_PER_BLOCK = 10


def laplacian(u):
    return (jnp.roll(u, 1, axis=1) + jnp.roll(u, -1, axis=1)
            + jnp.roll(u, 1, axis=2) + jnp.roll(u, -1, axis=2) - 4.0 * u)


def reaction(u, v):
    recovery = EPSILON + MU1 * v / (u + MU2)
    du = -K * u * (u - A) * (u - 1.0) - u * v
    dv = recovery * (-v - K * u * (u - A - 1.0))
    return du, dv


def substep(u, v, conduction):
    du, dv = reaction(u, v)
    u = u + DT * (conduction * laplacian(u) + du)
    v = v + DT * dv
    return u, v


@jax.jit
def advance(u, v, conduction, electrode, pulse):
    """One camera frame: stimulus, then the integration of the tissue."""
    u = jnp.maximum(u, pulse * electrode)
    return jax.lax.fori_loop(0, SUBSTEPS, lambda _, fields: substep(*fields, conduction), (u, v))


def depth_transfer():
    ky = np.fft.fftfreq(SIZE)[:, None]
    kx = np.fft.rfftfreq(SIZE)[None, :]
    k2 = ky ** 2 + kx ** 2
    depths = np.linspace(0.5, 6.0, DEPTHS)
    transfer = np.exp(-2.0 * (np.pi * depths[:, None, None]) ** 2 * k2)
    weights = np.exp(-depths / 3.0)
    return (jnp.asarray(transfer[:, None], dtype=jnp.float32),
            jnp.asarray(weights / weights.sum(), dtype=jnp.float32))


@jax.jit
def camera_frame(u, transfer, weights):
    spectrum = jnp.fft.rfft2(u)
    layers = jnp.fft.irfft2(spectrum[None] * transfer, s=(SIZE, SIZE))
    glow = layers / (1.0 + jnp.abs(layers))
    image = jnp.einsum("d,dsyx->syx", weights, glow)
    trace = image.reshape(SHEETS, 8, SIZE // 8, 8, SIZE // 8).mean(axis=(2, 4))
    return trace


def make_sheets():
    rng = np.random.default_rng(19)
    conduction = np.linspace(0.6, 1.4, SHEETS)[:, None, None]
    scar = 1.0 - 0.5 * (rng.random((SHEETS, SIZE // 16, SIZE // 16)) < 0.15)
    scar = np.repeat(np.repeat(scar, 16, axis=1), 16, axis=2)
    electrode = np.zeros((SHEETS, SIZE, SIZE))
    electrode[:, :, :6] = 1.0
    u = np.zeros((SHEETS, SIZE, SIZE))
    v = np.full((SHEETS, SIZE, SIZE), 0.05)
    return [jnp.asarray(field, dtype=jnp.float32) for field in (u, v, conduction * scar, electrode)]


def main():
    u, v, conduction, electrode = make_sheets()
    transfer, weights = depth_transfer()
    traces = []

    def step(index, u, v):
        pulse = 1.0 if index % 60 < 3 else 0.0
        u, v = advance(u, v, conduction, electrode, pulse)
        traces.append(camera_frame(u, transfer, weights))
        return u, v

    for index in range(WARMUP):
        u, v = step(index, u, v)
    jax.block_until_ready((u, v, traces[-1]))

    times = []
    index = WARMUP
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            u, v = step(index, u, v)
            index += 1
        jax.block_until_ready((u, v, traces[-1]))
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    record = np.stack([np.asarray(trace) for trace in traces])
    result = [float(jnp.mean(u)), float(jnp.mean(v)), float(record.mean()), float(record.std())]
    print(json.dumps({"program": PROGRAM, "steps": index,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
