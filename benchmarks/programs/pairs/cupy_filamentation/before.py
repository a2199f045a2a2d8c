"""Propagation of an intense laser beam with two circular polarisations through a gas cell.

Split-step scheme: diffraction in the spectral domain, saturable Kerr phase with cross coupling
and an absorbing frame in the spatial domain.
"""
import json
import math
import time

import cupy as cp
import numpy as np

PROGRAM = "cupy_filamentation"
BITS = 12
POINTS = 1 << BITS
WINDOW = 0.02          # metres
WAVELENGTH = 800e-9
STEP = 0.01            # metres along the axis
KERR = 0.15            # phase per step and unit intensity
SATURATION = 0.25
WARMUP = 1000
BLOCKS = 10
PER_BLOCK = 10

diffract = cp.ElementwiseKernel(
    "complex64 spectrum, raw complex64 row_phase, raw complex64 column_phase",
    "complex64 result",
    f"""
    const int cell = (int)(i & {POINTS * POINTS - 1});
    result = spectrum * (row_phase[cell >> {BITS}] * column_phase[cell & {POINTS - 1}]);
    """,
    "diffract",
)

kerr_rotation = cp.ElementwiseKernel(
    "complex64 left, complex64 right, raw float32 frame, float32 kerr, float32 saturation",
    "complex64 left_out, complex64 right_out",
    f"""
    const int cell = (int)i;
    const float damping = frame[cell >> {BITS}] * frame[cell & {POINTS - 1}];
    const float left_power = left.real() * left.real() + left.imag() * left.imag();
    const float right_power = right.real() * right.real() + right.imag() * right.imag();
    const float own_left = left_power + 2.0f * right_power;
    const float own_right = right_power + 2.0f * left_power;
    const float left_phase = kerr * own_left / (1.0f + saturation * own_left);
    const float right_phase = kerr * own_right / (1.0f + saturation * own_right);
    float s, c;
    __sincosf(left_phase, &s, &c);
    const complex<float> turned_left(damping * (left.real() * c - left.imag() * s),
                                     damping * (left.real() * s + left.imag() * c));
    __sincosf(right_phase, &s, &c);
    const complex<float> turned_right(damping * (right.real() * c - right.imag() * s),
                                      damping * (right.real() * s + right.imag() * c));
    left_out = turned_left;
    right_out = turned_right;
    """,
    "kerr_rotation",
)


def spectral_phases():
    """One-dimensional diffraction factors; the transform's normalisation is part of the row factor."""
    k = 2 * math.pi * np.fft.fftfreq(POINTS, WINDOW / POINTS)
    wave_number = 2 * math.pi / WAVELENGTH
    phase = np.exp(-0.5j * k * k * STEP / wave_number)
    row = (phase / (POINTS * POINTS)).astype(np.complex64)
    return cp.asarray(row), cp.asarray(phase.astype(np.complex64))


def absorbing_frame():
    position = np.linspace(-1.0, 1.0, POINTS)
    return cp.asarray(np.exp(-0.5 * np.clip((np.abs(position) - 0.85) / 0.15, 0.0, None) ** 2).astype(np.float32))


def launch_beam():
    axis = cp.linspace(-WINDOW / 2, WINDOW / 2, POINTS, dtype=cp.float32)
    radius2 = axis[:, None] ** 2 + axis[None, :] ** 2
    envelope = cp.exp(-radius2 / np.float32(0.004 ** 2))
    ripples = 1 + np.float32(0.03) * cp.cos(axis[None, :] * np.float32(9000.0)) * cp.cos(axis[:, None] * np.float32(7000.0))
    field = cp.empty((2, POINTS, POINTS), dtype=cp.complex64)
    field[0] = envelope * ripples
    field[1] = np.float32(0.6) * envelope
    return field


class GasCell:
    def __init__(self):
        self.row_phase, self.column_phase = spectral_phases()
        self.frame = absorbing_frame()
        self.field = launch_beam()

    def advance(self):
        spectrum = cp.fft.fft2(self.field, axes=(1, 2), norm="backward")
        diffract(spectrum, self.row_phase, self.column_phase, spectrum)
        field = cp.fft.ifft2(spectrum, axes=(1, 2), norm="forward")
        kerr_rotation(field[0], field[1], self.frame, np.float32(KERR), np.float32(SATURATION), field[0], field[1])
        self.field = field

    def power(self):
        return [float(cp.sum(cp.abs(polarisation) ** 2)) / POINTS ** 2 for polarisation in self.field]

    def peak(self):
        return float(cp.max(cp.abs(self.field[0]) ** 2))


def main():
    cell = GasCell()
    steps = 0
    for _ in range(WARMUP):
        cell.advance()
        steps += 1
    cp.cuda.Device().synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            cell.advance()
            steps += 1
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    result = cell.power() + [cell.peak()]
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
