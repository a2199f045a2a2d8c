"""Filter a sequence of telescope frames with a wide point-spread function by FFT."""

import json
import statistics
import time

import cupy as cp
import cupyx.scipy.fftpack
from cupy.cuda import cufft

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


apply_filter = cp.ElementwiseKernel(
    "float64 w",
    "complex128 z",
    "z = complex<double>(z.real() * w, z.imag() * w)",
    "apply_wiener",
)


class Deconvolver:
    """Wiener filter. The filter depends on the point spread only, so it is made once.

    The spot is real and even, so its transfer function is real; frames are real, so half
    of the spectrum suffices. The filter holds the 1 / SIZE**2 of the inverse transform.
    """

    def __init__(self):
        transfer = cp.fft.rfft2(point_spread())
        wiener = cp.conj(transfer) / (cp.abs(transfer) ** 2 + 1e-3)
        self.wiener = cp.ascontiguousarray(wiener.real) / SIZE**2
        self.clean = cp.empty((SIZE, SIZE), cp.float64)
        self.spectrum = cp.empty((SIZE, SIZE // 2 + 1), cp.complex128)
        try:
            plan = cupyx.scipy.fftpack.get_fft_plan
            self.forward = plan(self.clean, axes=(0, 1), value_type="R2C")
            self.inverse = plan(
                self.spectrum, shape=(SIZE, SIZE), axes=(0, 1), value_type="C2R"
            )
        except Exception:  # no such plans in this CuPy: its own functions then
            self.forward = self.inverse = None

    def __call__(self, frame):
        if self.forward is None:
            spectrum = cp.fft.rfft2(frame)
            apply_filter(self.wiener, spectrum)
            return cp.fft.irfft2(spectrum, s=(SIZE, SIZE), norm="forward")
        self.forward.fft(frame, self.spectrum, cufft.CUFFT_FORWARD)
        apply_filter(self.wiener, self.spectrum)
        self.inverse.fft(self.spectrum, self.clean, cufft.CUFFT_INVERSE)
        return self.clean


def main():
    rng = cp.random.default_rng(33)
    frames = rng.random((FRAMES, SIZE, SIZE), dtype=cp.float64)
    frames[:, ::97, ::89] += 50
    deconvolve = Deconvolver()
    best = cp.zeros((SIZE, SIZE))
    count = 0

    def step():
        nonlocal count
        clean = deconvolve(frames[count % FRAMES])
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
