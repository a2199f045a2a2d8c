"""Crater candidates in lunar elevation tiles: difference of Gaussians, two scales.

A tile of the elevation model is smoothed at the scale of the rim and at the scale of the
surroundings; bowls give strongly negative responses.  One step handles one tile and adds
to the survey's running statistics, which stay on the GPU.
"""
import json
import statistics
import time

import cupy as cp
import numpy as np
from cupyx.scipy import ndimage

TILE = 2048
TILES = 6
SIGMA_RIM, SIGMA_PLAIN = 2.0, 5.0
DEPTH = 6.0                      # metres below the surroundings
WARMUP, BLOCKS, PER_BLOCK = 5, 8, 4


def gaussian_taps(sigma):
    radius = int(4.0 * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    taps = np.exp(-0.5 * (offsets / sigma) ** 2)
    return taps / taps.sum()


def synth_tiles(seed=41):
    """Rolling mare, roughness, and bowls with a raised rim."""
    rng = np.random.default_rng(seed)
    axis = np.arange(TILE, dtype=np.float32)
    tiles = np.empty((TILES, TILE, TILE), dtype=np.float32)
    for tile in tiles:
        phase = rng.uniform(0, 6.28, 4).astype(np.float32)
        tile[:] = 1500.0 + 90.0 * np.sin(axis[:, None] / 310.0 + phase[0]) \
            + 70.0 * np.cos(axis[None, :] / 240.0 + phase[1])
        tile += rng.standard_normal((TILE, TILE), dtype=np.float32)
        for _ in range(400):
            cy, cx = rng.integers(60, TILE - 60, 2)
            radius = float(rng.uniform(4.0, 16.0))
            half = int(2.5 * radius)
            yy, xx = np.mgrid[-half:half + 1, -half:half + 1].astype(np.float32)
            rho = np.sqrt(yy * yy + xx * xx) / radius
            bowl = np.where(rho < 1.0, 2.2 * radius * (rho * rho - 0.85), 0.33 * radius * np.exp(-3.0 * (rho - 1.0)))
            tile[cy - half:cy + half + 1, cx - half:cx + half + 1] += bowl
    return cp.asarray(tiles)


class Smoother:
    """Gaussian low-pass at one scale."""

    def __init__(self, sigma):
        taps = gaussian_taps(sigma)
        self.kernel = cp.asarray(np.outer(taps, taps), dtype=cp.float32)

    def __call__(self, tile):
        return ndimage.convolve(tile, self.kernel, mode="nearest")


bowl_depth = cp.ElementwiseKernel(
    "float32 rim, float32 plain, float32 limit",
    "float32 depth",
    "float d = plain - rim; depth = d > limit ? d : 0.0f;",
    "bowl_depth",
)


class Survey:
    def __init__(self):
        self.rim = Smoother(SIGMA_RIM)
        self.plain = Smoother(SIGMA_PLAIN)
        self.deepest = cp.zeros((TILE, TILE), dtype=cp.float32)
        self.total = cp.zeros((), dtype=cp.float64)
        self.tiles = 0

    def add(self, tile):
        depth = bowl_depth(self.rim(tile), self.plain(tile), np.float32(DEPTH))
        cp.maximum(self.deepest, depth, out=self.deepest)
        self.total += depth.mean(dtype=cp.float64)
        self.tiles += 1


def main():
    tiles = synth_tiles()
    survey = Survey()
    stream = cp.cuda.get_current_stream()

    for _ in range(WARMUP):
        survey.add(tiles[survey.tiles % TILES])
    stream.synchronize()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            survey.add(tiles[survey.tiles % TILES])
        stream.synchronize()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    mean_depth = float(survey.total) / survey.tiles
    print(f"{survey.tiles} tiles, deepest {float(survey.deepest.max()):.1f} m")
    print(json.dumps({
        "program": "cupy_craters",
        "steps": survey.tiles,
        "us": statistics.median(per_step),
        "result": [mean_depth, float(survey.deepest.max()), float(survey.deepest.mean())],
    }))


if __name__ == "__main__":
    main()
