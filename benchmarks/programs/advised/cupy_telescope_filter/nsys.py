"""Filter a sequence of telescope frames with a wide point-spread function by FFT."""

import json
import statistics
import time

import cupy as cp
from cupyx.scipy import fft as cufft

SIZE = 2048
FRAMES = 4
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 6
SIGMA = 9.0


def point_spread():
    """Airy-like spot with diffraction spikes, centred."""
    axis = cp.arange(SIZE, dtype=cp.float64) - SIZE // 2
    y, x = axis[:, None], axis[None, :]
    r2 = x * x + y * y
    spot = cp.exp(-r2 / (2 * SIGMA**2)) + 0.02 * cp.exp(-cp.abs(x)) * cp.exp(-(y * y) / 5000)
    return cp.fft.ifftshift(spot / spot.sum())


def wiener_filter():
    """Half spectrum of the Wiener filter, the scale of the inverse transform folded in."""
    transfer = cp.fft.rfft2(point_spread())
    wiener = cp.conj(transfer) / (cp.abs(transfer) ** 2 + 1e-3)
    return cp.ascontiguousarray(wiener / (SIZE * SIZE))


def deconvolve(frame, wiener):
    """Wiener filter; frame and point spread are real, so half of the spectrum is enough."""
    spectrum = cufft.rfft2(frame)
    cp.multiply(spectrum, wiener, out=spectrum)
    return cufft.irfft2(spectrum, s=(SIZE, SIZE), norm="forward", overwrite_x=True)


def main():
    rng = cp.random.default_rng(33)
    frames = rng.random((FRAMES, SIZE, SIZE), dtype=cp.float64)
    frames[:, ::97, ::89] += 50
    best = cp.zeros((SIZE, SIZE))
    count = 0
    wiener = wiener_filter()  # the same in every step

    def step():
        nonlocal count
        clean = deconvolve(frames[count % FRAMES], wiener)
        cp.maximum(best, clean, out=best)
        count += 1

    for _ in range(WARMUP):
        step()
    cp.cuda.Device().synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    print(f"{1 / statistics.median(times):.0f} frames/s, brightest {float(best.max()):.2f}")
    out = {
        "program": "cupy_telescope_filter",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [float(best.mean()), float(best.std())],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
