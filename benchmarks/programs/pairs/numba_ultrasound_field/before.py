"""Pressure field of a phased ultrasound array, summed over its elements with Numba."""

import json
import math
import time

import numpy as np

np.row_stack = np.vstack  # Numba still asks for it

from numba import cuda  # noqa: E402

ELEMENTS = 1024
WIDTH, DEPTH = 384, 320
SPEED = 1540.0
PITCH = 0.0003
FREQUENCIES = [1.5e6, 2.0e6, 2.5e6]
WARMUP, STEPS = 3, 40


@cuda.jit
def field(x, z, element_x, delay, wavenumber, damping, real, imag):
    ix, iz = cuda.grid(2)
    if ix < x.size and iz < z.size:
        re = 0.0
        im = 0.0
        for e in range(element_x.size):
            dx = x[ix] - element_x[e]
            r = math.sqrt(dx * dx + z[iz] * z[iz])
            weight = math.exp(-damping * r) / r
            phase = wavenumber * (r - delay[e])
            re += weight * math.cos(phase)
            im += weight * math.sin(phase)
        real[iz, ix] += re
        imag[iz, ix] += im


def focus(element_x, x, z):
    """Path from each element to the focus, less that of the middle."""
    return np.sqrt((element_x - x) ** 2 + z**2) - z


def main():
    element_x = (np.arange(ELEMENTS) - ELEMENTS / 2) * PITCH
    x = np.linspace(-0.04, 0.04, WIDTH)
    z = np.linspace(0.005, 0.09, DEPTH)
    d_x, d_z, d_element = cuda.to_device(x), cuda.to_device(z), cuda.to_device(element_x)
    real = cuda.to_device(np.zeros((DEPTH, WIDTH)))
    imag = cuda.to_device(np.zeros((DEPTH, WIDTH)))
    delays = [cuda.to_device(focus(element_x, 0.01 * k, 0.05)) for k in (-1, 0, 1)]
    threads = (32, 4)
    blocks = (math.ceil(WIDTH / threads[0]), math.ceil(DEPTH / threads[1]))

    def frame(number):
        for frequency in FREQUENCIES:
            k = 2 * math.pi * frequency / SPEED
            field[blocks, threads](
                d_x, d_z, d_element, delays[number % 3], k, 5e-6 * frequency, real, imag
            )

    for n in range(WARMUP):
        frame(n)
    cuda.synchronize()
    begin = time.perf_counter()
    for n in range(STEPS):
        frame(n)
    cuda.synchronize()
    us = (time.perf_counter() - begin) / STEPS * 1e6
    amplitude = np.hypot(real.copy_to_host(), imag.copy_to_host())
    result = [float(amplitude.mean(dtype=np.float64)), float(amplitude[: DEPTH // 2].max())]
    print(f"{us:.0f} us a frame, mean amplitude {result[0]:.3f}")
    steps = WARMUP + STEPS
    report = {"program": "numba_ultrasound_field", "steps": steps, "us": us, "result": result}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
