"""FMCW radar: range, Doppler and angle transforms of a MIMO cube, then CFAR detection."""

import json
import statistics
import time

import numpy as np
import torch
import triton
import triton.language as tl

DEVICE = "cuda"
FRAMES = 4
ANTENNAS = 64
CHIRPS = 256
SAMPLES = 512
BEAMS = 128
GUARD = 2
TRAIN = 8
THRESHOLD_DB = 12.0
RECORDINGS = 4
WARMUP = 10
BLOCKS = 10
STEPS_PER_BLOCK = 40


def simulate(generator):
    """ADC counts of a few moving reflectors in noise."""
    t = torch.arange(SAMPLES, device=DEVICE) / SAMPLES
    c = torch.arange(CHIRPS, device=DEVICE) / CHIRPS
    a = torch.arange(ANTENNAS, device=DEVICE)
    cube = 40 * torch.randn(FRAMES, ANTENNAS, CHIRPS, SAMPLES, device=DEVICE, generator=generator)
    for _ in range(6):
        distance, speed, angle = torch.rand(3, device=DEVICE, generator=generator).tolist()
        phase = (
            2 * torch.pi * (10 + distance * SAMPLES / 3) * t
            + (2 * torch.pi * (speed - 0.5) * CHIRPS * c)[:, None]
            + (torch.pi * (angle - 0.5) * a)[:, None, None]
        )
        cube += 25 * torch.cos(phase)
    return cube.round().clamp(-2048, 2047).to(torch.int16)


# Powers of two that keep a full-scale 12-bit signal inside half precision at each transform.
RANGE_SCALE = 2.0**-4
DOPPLER_SCALE = 2.0**-7
POWER_SCALE = (RANGE_SCALE * DOPPLER_SCALE) ** -2
CELLS = 64


@triton.jit
def angle_kernel(
    spectrum, weight_re, weight_im, level_db, best, tiles, power_scale,
    PLANE: tl.constexpr, INPUTS: tl.constexpr, BEAMS: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """Angle transform, power, strongest beam and decibels of CELLS range-Doppler cells a turn."""
    beam = tl.arange(0, BEAMS)
    inputs = tl.arange(0, INPUTS)
    cells = tl.arange(0, CELLS)
    at = beam[:, None] * INPUTS + inputs[None, :]
    w_re = tl.load(weight_re + at)
    w_im = tl.load(weight_im + at)
    per_frame: tl.constexpr = PLANE // CELLS
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        frame = tile // per_frame
        start = (tile % per_frame) * CELLS
        source = spectrum + frame * INPUTS * PLANE + start
        x = tl.load(source + inputs[:, None] * PLANE + cells[None, :])
        re = tl.dot(w_re, x)
        im = tl.dot(w_im, x)
        power, index = tl.max(re * re + im * im, axis=0, return_indices=True)
        target = frame * PLANE + start + cells
        tl.store(level_db + target, 3.0102999566398120 * tl.log2(power * power_scale + 1.0))
        tl.store(best + target, index.to(tl.int64))


@triton.jit
def box_rows_kernel(level, wide, narrow, W: tl.constexpr, EDGE: tl.constexpr, INNER: tl.constexpr):
    row = tl.program_id(0)
    x = tl.arange(0, W)
    outer = tl.zeros([W], tl.float32)
    inner = tl.zeros([W], tl.float32)
    for k in tl.static_range(2 * EDGE + 1):
        at = x + (k - EDGE)
        v = tl.load(level + row * W + at, mask=(at >= 0) & (at < W), other=0.0)
        outer += v
        if k >= EDGE - INNER:
            if k <= EDGE + INNER:
                inner += v
    tl.store(wide + row * W + x, outer)
    tl.store(narrow + row * W + x, inner)


@triton.jit
def cfar_kernel(
    level, wide, narrow, hits, threshold, H: tl.constexpr, W: tl.constexpr,
    EDGE: tl.constexpr, INNER: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    y = row % H
    x = tl.arange(0, W)
    ring = tl.zeros([W], tl.float32)
    for k in tl.static_range(2 * EDGE + 1):
        inside = (x >= 0) & (y + (k - EDGE) >= 0) & (y + (k - EDGE) < H)
        at = (row + (k - EDGE)) * W + x
        ring += tl.load(wide + at, mask=inside, other=0.0)
        if k >= EDGE - INNER:
            if k <= EDGE + INNER:
                ring -= tl.load(narrow + at, mask=inside, other=0.0)
    here = tl.load(level + row * W + x)
    tl.store(hits + row * W + x, (here > ring / COUNT + threshold).to(tl.uint8))


def as_real(matrix):
    """A complex matrix as [2, outputs, inputs, 2]: rows are real and imaginary results."""
    re, im = matrix.real, matrix.imag
    return np.stack([np.stack([re, -im], -1), np.stack([im, re], -1)])


class RadarProcessor:
    """The three transforms as products with windowed Fourier matrices on the tensor cores."""

    def __init__(self):
        def to_half(array):
            return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE).half()

        bins = SAMPLES // 2
        sample = np.arange(SAMPLES)[:, None]
        wave = np.exp(-2j * np.pi * (sample * np.arange(bins) % SAMPLES) / SAMPLES)
        wave *= np.hanning(SAMPLES)[:, None] * RANGE_SCALE
        self.range_matrix = to_half(np.concatenate([wave.real, wave.imag], axis=1))

        shifted = (np.arange(CHIRPS)[:, None] + CHIRPS // 2) % CHIRPS
        wave = np.exp(-2j * np.pi * (shifted * np.arange(CHIRPS) % CHIRPS) / CHIRPS)
        wave *= np.hamming(CHIRPS) * DOPPLER_SCALE
        self.doppler_matrix = to_half(as_real(wave).reshape(2 * CHIRPS, 2 * CHIRPS))

        beam = np.arange(BEAMS)[:, None]
        wave = np.exp(-2j * np.pi * (beam * np.arange(ANTENNAS) % BEAMS) / BEAMS)
        wave *= np.kaiser(ANTENNAS, 6.0)
        angle = as_real(wave).reshape(2, BEAMS, 2 * ANTENNAS)
        self.angle_re, self.angle_im = to_half(angle[0]), to_half(angle[1])
        processors = torch.cuda.get_device_properties(DEVICE).multi_processor_count
        self.programs = 2 * processors

    def transform(self, adc):
        """Range and Doppler: half precision [frame, antenna, part, Doppler, range]."""
        bins = SAMPLES // 2
        signal = adc.to(torch.float16).view(-1, SAMPLES)  # counts are exact in half precision
        spectrum = torch.mm(signal, self.range_matrix)  # [frame antenna chirp, part range]
        spectrum = spectrum.view(FRAMES * ANTENNAS, CHIRPS * 2, bins)
        doppler = self.doppler_matrix.expand(FRAMES * ANTENNAS, -1, -1)
        return torch.bmm(doppler, spectrum)

    def detect(self, spectrum):
        bins = SAMPLES // 2
        plane = CHIRPS * bins
        shape = (FRAMES, CHIRPS, bins)
        level_db = torch.empty(shape, device=DEVICE)
        best = torch.empty(shape, device=DEVICE, dtype=torch.int64)
        angle_kernel[(self.programs,)](
            spectrum, self.angle_re, self.angle_im, level_db, best,
            FRAMES * plane // CELLS, POWER_SCALE,
            PLANE=plane, INPUTS=2 * ANTENNAS, BEAMS=BEAMS, CELLS=CELLS,
            num_warps=8, num_stages=2,
        )  # fmt: skip
        wide, narrow = torch.empty_like(level_db), torch.empty_like(level_db)
        hits = torch.empty(shape, device=DEVICE, dtype=torch.uint8)
        edge = GUARD + TRAIN
        count = (2 * edge + 1) ** 2 - (2 * GUARD + 1) ** 2
        rows = (FRAMES * CHIRPS,)
        box_rows_kernel[rows](level_db, wide, narrow, W=bins, EDGE=edge, INNER=GUARD)
        cfar_kernel[rows](
            level_db, wide, narrow, hits, THRESHOLD_DB,
            H=CHIRPS, W=bins, EDGE=edge, INNER=GUARD, COUNT=count,
        )  # fmt: skip
        return level_db, best, hits.view(torch.bool)


@torch.no_grad()
def main():
    generator = torch.Generator(device=DEVICE).manual_seed(77)
    recordings = [simulate(generator) for _ in range(RECORDINGS)]
    processor = RadarProcessor()

    def frame(i):
        return processor.detect(processor.transform(recordings[i % RECORDINGS]))

    for i in range(WARMUP):
        frame(i)
    torch.cuda.synchronize()
    times = []
    count = 0
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            level_db, best, hits = frame(count)
            count += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"{hits.sum().item()} detections, {FRAMES / times[-1]:.0f} frames/s")
    level_db, best, hits = frame(0)
    out = {
        "program": "torch_radar_cube",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [level_db.mean().item(), level_db.max().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
