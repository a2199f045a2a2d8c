"""Numerical refocusing of in-line holograms: all-in-focus amplitude and depth index per pixel."""
import json
import statistics
import time

import cupy as cp
import numpy as np

SIDE = 2048
PIXEL = 3.45e-6
WAVELENGTH = 532e-9
PLANES = 10
NEAR, FAR = 4e-3, 9e-3
FRAMES = 3
WARMUP = 5
BLOCK = 3
BLOCKS = 8

angular_spectrum = cp.ElementwiseKernel(
    "int32 side, float64 unit, float64 wavenumber, float64 distance", "complex64 factor",
    """
    int row = i / side, column = i % side;
    double fy = unit * (row < side / 2 ? row : row - side);
    double fx = unit * (column < side / 2 ? column : column - side);
    double phase = -2.0 * 3.14159265358979323846 * distance
                   * sqrt(max(wavenumber * wavenumber - fx * fx - fy * fy, 0.0));
    factor = complex<float>((float)cos(phase), (float)sin(phase));
    """,
    "angular_spectrum")

local_contrast = cp.ElementwiseKernel(
    "raw float32 amplitude, float32 here, int32 side", "float32 contrast",
    """
    int row = i / side, column = i % side;
    int up = row > 0 ? i - side : i, down = row < side - 1 ? i + side : i;
    int left = column > 0 ? i - 1 : i, right = column < side - 1 ? i + 1 : i;
    float vertical = amplitude[down] - amplitude[up];
    float horizontal = amplitude[right] - amplitude[left];
    contrast = vertical * vertical + horizontal * horizontal;
    """,
    "local_contrast")

keep_sharper = cp.ElementwiseKernel(
    "float32 contrast, float32 amplitude, int32 plane",
    "float32 best, float32 focused, int32 depth",
    "if (contrast > best) { best = contrast; focused = amplitude; depth = plane; }",
    "keep_sharper")


def transfer_functions():
    """Angular spectrum propagators for the planes, computed once."""
    stack = cp.empty((PLANES, SIDE, SIDE), dtype=cp.complex64)
    for plane, distance in enumerate(np.linspace(NEAR, FAR, PLANES)):
        angular_spectrum(SIDE, 1.0 / (SIDE * PIXEL), 1.0 / WAVELENGTH, float(distance), stack[plane])
    return stack


def synthetic_frames(propagators):
    """Opaque discs at random planes, propagated to the sensor one after another."""
    rng = np.random.default_rng(12)
    frames = []
    for _ in range(FRAMES):
        field = None
        for plane in rng.permutation(PLANES)[:4]:
            objects = np.ones((SIDE, SIDE), dtype=np.complex64)
            for _ in range(6):
                y, x = rng.integers(100, SIDE - 100, size=2)
                radius = int(rng.integers(8, 30))
                span = np.arange(-radius, radius + 1)
                disc = span[:, None] ** 2 + span[None, :] ** 2 <= radius ** 2
                objects[y - radius:y + radius + 1, x - radius:x + radius + 1][disc] = 0
            spectrum = cp.fft.fft2(cp.asarray(objects))
            wave = cp.fft.ifft2(spectrum * cp.conj(propagators[plane]))
            field = wave if field is None else field * wave
        frames.append(cp.square(cp.abs(field)))
    return frames


class Refocuser:
    def __init__(self, propagators):
        self.propagators = propagators

    def planes(self, hologram):
        """Yields the amplitude at each plane."""
        spectrum = cp.fft.fft2((hologram / hologram.mean()).astype(cp.complex64))
        for plane in range(PLANES):
            field = cp.fft.ifft2(spectrum * self.propagators[plane])
            amplitude = cp.abs(field)
            del field
            yield plane, amplitude

    def refocus(self, hologram):
        best = cp.zeros((SIDE, SIDE), dtype=cp.float32)
        focused = cp.zeros((SIDE, SIDE), dtype=cp.float32)
        depth = cp.zeros((SIDE, SIDE), dtype=cp.int32)
        for plane, amplitude in self.planes(hologram):
            contrast = local_contrast(amplitude, amplitude, SIDE)
            keep_sharper(contrast, amplitude, plane, best, focused, depth)
            del contrast, amplitude
        return focused, depth


def main():
    propagators = transfer_functions()
    frames = synthetic_frames(propagators)
    refocuser = Refocuser(propagators)
    finish = cp.cuda.Device().synchronize

    done = 0
    for _ in range(WARMUP):
        focused, depth = refocuser.refocus(frames[done % FRAMES])
        done += 1
    finish()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            focused, depth = refocuser.refocus(frames[done % FRAMES])
            done += 1
        finish()
        times.append((time.perf_counter() - start) / BLOCK)

    result = [float(focused.mean()), float(focused.std()), float(depth.mean())]
    print(json.dumps({"program": "cupy_hologram", "steps": done,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
