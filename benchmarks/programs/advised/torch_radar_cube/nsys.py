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


@triton.jit
def window_kernel(
    adc,
    range_window,
    doppler_window,
    out,
    CHIRPS: tl.constexpr,
    SAMPLES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    weight = tl.load(range_window + i % SAMPLES) * tl.load(doppler_window + i // SAMPLES % CHIRPS)
    tl.store(out + i, tl.load(adc + i).to(tl.float32) * weight)


@triton.jit
def angle_kernel(
    spectrum,
    matrix_re,
    matrix_im,
    level_db,
    best,
    CHIRPS: tl.constexpr,
    ANTENNAS: tl.constexpr,
    BEAMS: tl.constexpr,
    RANGES: tl.constexpr,
    PITCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Angle transform as a matrix product, then the strongest beam of each cell.

    spectrum: frames, antennas, chirps, PITCH complex numbers as pairs of floats.
    """
    chirp = tl.program_id(0)
    frame = tl.program_id(1)
    beam = tl.arange(0, BEAMS)
    antenna = tl.arange(0, ANTENNAS)
    where = beam[:, None] * ANTENNAS + antenna[None, :]
    m_re = tl.load(matrix_re + where)
    m_im = tl.load(matrix_im + where)
    rows = ((frame * ANTENNAS + antenna) * CHIRPS + chirp) * (2 * PITCH)
    for start in range(0, RANGES, BLOCK):
        cell = start + tl.arange(0, BLOCK)
        source = spectrum + rows[:, None] + 2 * cell[None, :]
        x_re = tl.load(source)
        x_im = tl.load(source + 1)
        re = tl.dot(m_re, x_re, input_precision="tf32")
        re = tl.dot(m_im, -x_im, re, input_precision="tf32")
        im = tl.dot(m_re, x_im, input_precision="tf32")
        im = tl.dot(m_im, x_re, im, input_precision="tf32")
        level, index = tl.max(re * re + im * im, axis=0, return_indices=True)
        target = (frame * CHIRPS + chirp) * RANGES + cell
        tl.store(level_db + target, tl.log2(level + 1.0) * 3.010299956639812)
        tl.store(best + target, index.to(tl.int64))


@triton.jit
def row_sums_kernel(
    level_db, large, small, RANGES: tl.constexpr, OUTER: tl.constexpr, GUARD: tl.constexpr
):
    cell = tl.arange(0, RANGES)
    row = tl.program_id(0) * RANGES
    wide = tl.zeros([RANGES], dtype=tl.float32)
    narrow = tl.zeros([RANGES], dtype=tl.float32)
    for k in tl.static_range(2 * OUTER + 1):
        at = cell + (k - OUTER)
        value = tl.load(level_db + row + at, mask=(at >= 0) & (at < RANGES), other=0.0)
        wide += value
        if k >= OUTER - GUARD and k <= OUTER + GUARD:
            narrow += value
    tl.store(large + row + cell, wide)
    tl.store(small + row + cell, narrow)


@triton.jit
def cfar_kernel(
    level_db,
    large,
    small,
    hits,
    threshold,
    scale,
    CHIRPS: tl.constexpr,
    RANGES: tl.constexpr,
    OUTER: tl.constexpr,
    GUARD: tl.constexpr,
):
    cell = tl.arange(0, RANGES)
    chirp = tl.program_id(0)
    plane = tl.program_id(1) * CHIRPS * RANGES
    noise = tl.zeros([RANGES], dtype=tl.float32)
    for k in tl.static_range(2 * OUTER + 1):
        y = chirp + (k - OUTER)
        inside = (y >= 0) & (y < CHIRPS) & (cell >= 0)
        at = plane + y * RANGES + cell
        noise += tl.load(large + at, mask=inside, other=0.0)
        if k >= OUTER - GUARD and k <= OUTER + GUARD:
            noise -= tl.load(small + at, mask=inside, other=0.0)
    at = plane + chirp * RANGES + cell
    hit = tl.load(level_db + at) > noise * scale + threshold
    tl.store(hits + at, hit.to(tl.int8))


class RadarProcessor:
    def __init__(self):
        self.range_window = torch.from_numpy(np.hanning(SAMPLES)).float().to(DEVICE)
        # The alternating sign does what fftshift would do after the transform.
        sign = np.where(np.arange(CHIRPS) % 2, -1.0, 1.0)
        self.doppler_window = torch.from_numpy(np.hamming(CHIRPS) * sign).float().to(DEVICE)
        turns = np.outer(np.arange(BEAMS), np.arange(ANTENNAS)) / BEAMS
        matrix = np.exp(-2j * np.pi * turns) * np.kaiser(ANTENNAS, 6.0)
        self.matrix_re = torch.from_numpy(matrix.real.copy()).float().to(DEVICE)
        self.matrix_im = torch.from_numpy(matrix.imag.copy()).float().to(DEVICE)

    def transform(self, adc):
        signal = torch.empty(adc.shape, device=DEVICE, dtype=torch.float32)
        window_kernel[(adc.numel() // 4096,)](
            adc, self.range_window, self.doppler_window, signal, CHIRPS, SAMPLES, 4096, num_warps=8
        )
        return torch.fft.rfft2(signal, dim=(-2, -1)).contiguous()

    def detect(self, spectrum):
        ranges = SAMPLES // 2
        shape = FRAMES, CHIRPS, ranges
        level_db = torch.empty(shape, device=DEVICE)
        best = torch.empty(shape, device=DEVICE, dtype=torch.int64)
        angle_kernel[(CHIRPS, FRAMES)](
            torch.view_as_real(spectrum),
            self.matrix_re,
            self.matrix_im,
            level_db,
            best,
            CHIRPS,
            ANTENNAS,
            BEAMS,
            ranges,
            ranges + 1,
            64,
            num_warps=8,
            num_stages=1,
        )
        large = torch.empty_like(level_db)
        small = torch.empty_like(level_db)
        hits = torch.empty(shape, device=DEVICE, dtype=torch.int8)
        outer = GUARD + TRAIN
        count = (2 * outer + 1) ** 2 - (2 * GUARD + 1) ** 2
        row_sums_kernel[(FRAMES * CHIRPS,)](level_db, large, small, ranges, outer, GUARD)
        cfar_kernel[(CHIRPS, FRAMES)](
            level_db, large, small, hits, THRESHOLD_DB, 1.0 / count, CHIRPS, ranges, outer, GUARD
        )
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
