"""Colour difference between press proofs and the approved master (CIE76, D65)."""
import json
import statistics
import time

import cupy as cp

NAME = "cupy_colour_proof"
HEIGHT = 4096
WIDTH = 6144
PROOFS = 3
LIMIT = 3.0
WARMUP = 5
BLOCKS = 6
STEPS_PER_BLOCK = 5

RGB_TO_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
WHITE = (0.95047, 1.0, 1.08883)


def linearise(channel):
    """sRGB transfer curve back to linear light."""
    low = channel / 12.92
    high = ((channel + 0.055) / 1.055) ** 2.4
    return cp.where(channel <= 0.04045, low, high)


def lab_curve(t):
    return cp.where(t > 0.008856, cp.cbrt(t), 7.787 * t + 16.0 / 116.0)


def rgb_to_lab(image):
    """Planar sRGB image (3, H, W) to the planes L, a, b."""
    r, g, b = (linearise(image[c]) for c in range(3))
    f = []
    for row, white in zip(RGB_TO_XYZ, WHITE):
        value = row[0] * r + row[1] * g + row[2] * b
        f.append(lab_curve(value / white))
    lightness = 116.0 * f[1] - 16.0
    green_red = 500.0 * (f[0] - f[1])
    blue_yellow = 200.0 * (f[1] - f[2])
    return lightness, green_red, blue_yellow


def colour_difference(proof, master):
    lightness, green_red, blue_yellow = rgb_to_lab(proof)
    return cp.sqrt(
        (lightness - master[0]) ** 2
        + (green_red - master[1]) ** 2
        + (blue_yellow - master[2]) ** 2
    )


class ProofCheck:
    """Keeps the master in Lab and the report of every checked proof on the device."""

    def __init__(self, master_rgb, reports):
        self.master = rgb_to_lab(master_rgb)
        self.report = cp.zeros((reports, 3), dtype=cp.float32)
        self.row = 0

    def check(self, proof):
        difference = colour_difference(proof, self.master)
        self.report[self.row, 0] = difference.mean()
        self.report[self.row, 1] = difference.max()
        self.report[self.row, 2] = (difference > LIMIT).mean()
        self.row += 1


def synthetic_master(rng):
    """Smooth colour wedges with halftone-like grain."""
    y = cp.linspace(0, 1, HEIGHT, dtype=cp.float32)[:, None]
    x = cp.linspace(0, 1, WIDTH, dtype=cp.float32)[None, :]
    planes = cp.stack([0.2 + 0.6 * x * cp.ones_like(y), 0.8 - 0.5 * y * cp.ones_like(x), 0.3 + 0.4 * x * y])
    planes += 0.05 * rng.random(planes.shape, dtype=cp.float32)
    return planes


def synthetic_proof(master, rng, gain):
    noise = rng.random(master.shape, dtype=cp.float32)
    return cp.clip(master * gain + 0.04 * (noise - 0.5), 0.0, 1.0)


def main():
    rng = cp.random.default_rng(12)
    master = synthetic_master(rng)
    proofs = [synthetic_proof(master, rng, 0.97 + 0.02 * i) for i in range(PROOFS)]
    total_steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    checker = ProofCheck(master, total_steps)

    for i in range(WARMUP):
        checker.check(proofs[i % PROOFS])
    cp.cuda.Device().synchronize()

    times = []
    steps = WARMUP
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            checker.check(proofs[steps % PROOFS])
            steps += 1
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    report = cp.asnumpy(checker.report)
    print(json.dumps({
        "program": NAME,
        "steps": steps,
        "us": statistics.median(times),
        "result": [float(report[:, 0].mean()), float(report[:, 1].mean()), float(report[:, 2].mean())],
    }))


if __name__ == "__main__":
    main()
