"""Filter a sequence of telescope frames with a wide point-spread function by FFT."""

import json
import statistics
import time

import cupy as cp
from cupy.cuda import cufft
from cupyx.scipy.fft import get_fft_plan

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
    """Half-spectrum Wiener filter, the same for every frame, with the inverse FFT's scale.

    The spread is even in x and y, so its transfer function, and this filter, are real.
    """
    transfer = cp.fft.rfft2(point_spread())
    wiener = cp.conj(transfer) / (cp.abs(transfer) ** 2 + 1e-3)
    return cp.ascontiguousarray((wiener.real / SIZE**2).astype(cp.float32))


to_single = cp.ElementwiseKernel("float64 x", "float32 y", "y = (float)x", "to_single")
apply_filter = cp.ElementwiseKernel(
    "float32 w", "complex64 s", "s = complex<float>(s.real() * w, s.imag() * w)", "apply_filter"
)


def main():
    rng = cp.random.default_rng(33)
    frames = rng.random((FRAMES, SIZE, SIZE), dtype=cp.float64)
    frames[:, ::97, ::89] += 50
    best = cp.zeros((SIZE, SIZE), dtype=cp.float32)
    count = 0

    wiener = wiener_filter()
    image = cp.zeros((SIZE, SIZE), dtype=cp.float32)
    clean = cp.zeros((SIZE, SIZE), dtype=cp.float32)
    spectrum = cp.zeros((SIZE, SIZE // 2 + 1), dtype=cp.complex64)
    forward = get_fft_plan(image, axes=(0, 1), value_type="R2C")
    inverse = get_fft_plan(spectrum, shape=(SIZE, SIZE), axes=(0, 1), value_type="C2R")

    def step():
        nonlocal count
        to_single(frames[count % FRAMES], image)
        forward.fft(image, spectrum, cufft.CUFFT_FORWARD)
        apply_filter(wiener, spectrum)
        inverse.fft(spectrum, clean, cufft.CUFFT_INVERSE)
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
    best = best.astype(cp.float64)
    out = {
        "program": "cupy_telescope_filter",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [float(best.mean()), float(best.std())],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
