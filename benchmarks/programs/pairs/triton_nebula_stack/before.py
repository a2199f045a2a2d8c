"""Stacks raw exposures of a nebula in four filters with min-max rejection and measures the stars on the stack."""
import json
import time

import numpy as np
import torch
import triton
import triton.language as tl

NAME = "triton_nebula_stack"
SEED = 7331
SIDE = 4096
EXPOSURES = 32
FILTERS = ("L", "R", "G", "B")
STARS = 2048
APERTURE = 8.0
DEVICE = torch.device("cuda")


@triton.jit
def stack_kernel(raw, dark, gain, mean, noise, n_pixels, sky,
                 EXPOSURES: tl.constexpr, UNROLL: tl.constexpr, BLOCK: tl.constexpr):
    """One pass over all exposures of a block of pixels: calibrate, drop lowest and highest, mean and standard error."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    square = tl.zeros([BLOCK], tl.float32)
    low = tl.full([BLOCK], float("inf"), tl.float32)
    high = tl.full([BLOCK], float("-inf"), tl.float32)
    frame = raw + pixel
    for _ in range(EXPOSURES // UNROLL):
        for _k in tl.static_range(UNROLL):
            count = tl.load(frame, eviction_policy="evict_first").to(tl.float32) - sky
            frame += n_pixels
            total += count
            square += count * count
            low = tl.minimum(low, count)
            high = tl.maximum(high, count)
    kept: tl.constexpr = EXPOSURES - 2
    total -= low + high
    square -= low * low + high * high
    average = total / kept
    variance = tl.maximum(square / kept - average * average, 0.0)
    bias = tl.load(dark + pixel).to(tl.float32)
    flat = tl.load(gain + pixel).to(tl.float32)
    tl.store(mean + pixel, (average + sky - bias) * flat)
    tl.store(noise + pixel, (tl.sqrt(variance / kept) * flat).to(tl.float16))


@triton.jit
def photometry_kernel(mean, noise, rows, columns, flux, error, side, aperture,
                      TILE: tl.constexpr):
    """Sum in a round aperture less the background of the ring around it, one star per program."""
    star = tl.program_id(0)
    row = tl.load(rows + star)
    column = tl.load(columns + star)
    dy = tl.arange(0, TILE)[:, None] - TILE // 2
    dx = tl.arange(0, TILE)[None, :] - TILE // 2
    place = (row + dy) * side + column + dx
    distance = tl.sqrt((dy * dy + dx * dx).to(tl.float32))
    value = tl.load(mean + place)
    sigma = tl.load(noise + place).to(tl.float32)
    inside = (distance <= aperture).to(tl.float32)
    ring = ((distance > aperture + 2.0) & (distance < 2.0 * aperture - 1.0)).to(tl.float32)
    area = tl.sum(tl.sum(inside, 1), 0)
    background = tl.sum(tl.sum(value * ring, 1), 0) / tl.sum(tl.sum(ring, 1), 0)
    signal = tl.sum(tl.sum(value * inside, 1), 0) - background * area
    variance = tl.sum(tl.sum(sigma * sigma * inside, 1), 0)
    tl.store(flux + star, signal)
    tl.store(error + star, tl.sqrt(variance))


class FilterStack:
    """Exposures, calibration frames and products of one filter."""

    def __init__(self, name, level, rows, columns, generator):
        self.name = name
        self.raw = torch.empty(EXPOSURES, SIDE, SIDE, dtype=torch.int16, device=DEVICE)
        scene = torch.full((SIDE, SIDE), 900.0, device=DEVICE)
        offsets = torch.arange(-4, 5, device=DEVICE)
        profile = torch.exp(-(offsets[:, None] ** 2 + offsets[None, :] ** 2) / 6.0)
        y = rows.long()[:, None, None] + offsets[None, :, None]
        x = columns.long()[:, None, None] + offsets[None, None, :]
        scene.index_put_((y, x), (level * profile).expand(STARS, 9, 9), accumulate=True)
        for k in range(EXPOSURES):
            frame = torch.randn(SIDE, SIDE, device=DEVICE, generator=generator)
            self.raw[k] = (scene + 30.0 * frame).clamp_(0, 32000).to(torch.int16)
        self.dark = torch.full((SIDE, SIDE), 250.0, device=DEVICE, dtype=torch.float16)
        ramp = torch.linspace(-1, 1, SIDE, device=DEVICE)
        self.gain = (1.0 + 0.1 * (ramp[:, None] ** 2 + ramp[None, :] ** 2)).half()
        self.mean = torch.empty(SIDE, SIDE, device=DEVICE)
        self.noise = torch.empty(SIDE, SIDE, device=DEVICE, dtype=torch.float16)
        self.flux = torch.empty(STARS, device=DEVICE)
        self.error = torch.empty(STARS, device=DEVICE)

    def process(self, rows, columns):
        block = 1024
        n_pixels = SIDE * SIDE
        stack_kernel[(n_pixels // block,)](
            self.raw, self.dark, self.gain, self.mean, self.noise, n_pixels, 900.0,
            EXPOSURES=EXPOSURES, UNROLL=8, BLOCK=block, num_warps=4)
        photometry_kernel[(STARS,)](
            self.mean, self.noise, rows, columns, self.flux, self.error, SIDE, APERTURE,
            TILE=32, num_warps=4)


def main():
    generator = torch.Generator(device=DEVICE).manual_seed(SEED)
    host = torch.Generator().manual_seed(SEED + 1)
    rows = torch.randint(32, SIDE - 32, (STARS,), generator=host).to(DEVICE, torch.int32)
    columns = torch.randint(32, SIDE - 32, (STARS,), generator=host).to(DEVICE, torch.int32)
    stacks = [FilterStack(name, level, rows, columns, generator)
              for name, level in zip(FILTERS, (4000.0, 1500.0, 1200.0, 900.0))]

    def night():
        for stack in stacks:
            stack.process(rows, columns)

    for _ in range(10):
        night()
    torch.cuda.synchronize()

    times, per_block = [], 30
    for _ in range(12):
        start = time.perf_counter()
        for _ in range(per_block):
            night()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / per_block)

    luminance, red = stacks[0], stacks[1]
    result = [float(luminance.flux.mean()), float(red.flux.mean()),
              float(luminance.error.mean()), float(luminance.mean.mean())]
    print(json.dumps({"program": NAME, "steps": 12 * per_block, "us": float(np.median(times)) * 1e6,
                      "result": result}))


if __name__ == "__main__":
    main()
