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
def window_kernel(adc, range_window, doppler_window, out, CHIRPS: tl.constexpr, SAMPLES: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sample = tl.arange(0, SAMPLES)
    at = row[:, None] * SAMPLES + sample[None, :]
    weight = tl.load(doppler_window + row % CHIRPS)[:, None] * tl.load(range_window + sample)[None, :]
    tl.store(out + at, tl.load(adc + at).to(tl.float32) * weight)


@triton.jit
def round_tf32(x):
    """To the nearest number of TF32, so that the tensor cores' truncation changes nothing."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def beam_kernel(
    spectrum,
    steer_real,
    steer_imag,
    level_db,
    best,
    ANTENNAS: tl.constexpr,
    BEAMS: tl.constexpr,
    CHIRPS: tl.constexpr,
    BINS: tl.constexpr,
    RANGES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For one frame and Doppler bin: all beams as a matrix product, and the strongest of them."""
    row = tl.program_id(0)
    antenna = tl.arange(0, ANTENNAS)
    beam = tl.arange(0, BEAMS)
    matrix = beam[:, None] * ANTENNAS + antenna[None, :]
    er = tl.load(steer_real + matrix)
    ei = tl.load(steer_imag + matrix)
    first = ((row // CHIRPS * ANTENNAS + antenna) * CHIRPS + row % CHIRPS) * BINS
    for start in range(0, RANGES, BLOCK):
        column = start + tl.arange(0, BLOCK)
        at = spectrum + 2 * (first[:, None] + column[None, :])
        xr = round_tf32(tl.load(at))
        xi = round_tf32(tl.load(at + 1))
        yr = tl.dot(er, xr, input_precision="tf32")
        yr = tl.dot(ei, -xi, yr, input_precision="tf32")
        yi = tl.dot(er, xi, input_precision="tf32")
        yi = tl.dot(ei, xr, yi, input_precision="tf32")
        level, index = tl.max(yr * yr + yi * yi, axis=0, return_indices=True)
        tl.store(level_db + row * RANGES + column, 3.0102999566398120 * tl.log2(level + 1.0))
        tl.store(best + row * RANGES + column, index.to(tl.int64))


@triton.jit
def column_sums_kernel(level_db, outer, inner, CHIRPS: tl.constexpr, RANGES: tl.constexpr, REACH: tl.constexpr, GUARD: tl.constexpr):
    row = tl.program_id(0)
    doppler = row % CHIRPS
    column = tl.arange(0, RANGES)
    wide = tl.zeros((RANGES,), tl.float32)
    narrow = tl.zeros((RANGES,), tl.float32)
    for o in range(-REACH, REACH + 1):
        inside = (column >= 0) & (doppler + o >= 0) & (doppler + o < CHIRPS)
        x = tl.load(level_db + (row + o) * RANGES + column, mask=inside, other=0.0)
        wide += x
        narrow += tl.where((column >= 0) & (o >= -GUARD) & (o <= GUARD), x, 0.0)
    tl.store(outer + row * RANGES + column, wide)
    tl.store(inner + row * RANGES + column, narrow)


@triton.jit
def hits_kernel(level_db, outer, inner, hits, scale, threshold, RANGES: tl.constexpr, REACH: tl.constexpr, GUARD: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, RANGES)
    noise = tl.zeros((RANGES,), tl.float32)
    for o in range(-REACH, REACH + 1):
        inside = (column + o >= 0) & (column + o < RANGES)
        noise += tl.load(outer + row * RANGES + column + o, mask=inside, other=0.0)
    for o in range(-GUARD, GUARD + 1):
        inside = (column + o >= 0) & (column + o < RANGES)
        noise -= tl.load(inner + row * RANGES + column + o, mask=inside, other=0.0)
    x = tl.load(level_db + row * RANGES + column)
    tl.store(hits + row * RANGES + column, (x > noise * scale + threshold).to(tl.int8))


class RadarProcessor:
    def __init__(self):
        # A sign that alternates between chirps moves the Doppler spectrum by half: the fftshift.
        sign = 1.0 - 2.0 * (np.arange(CHIRPS) % 2)
        self.range_window = torch.from_numpy(np.hanning(SAMPLES)).float().to(DEVICE)
        self.doppler_window = torch.from_numpy(np.hamming(CHIRPS) * sign).float().to(DEVICE)
        # The windowed, zero-padded Fourier transform over the antennas, as a matrix.
        turns = np.arange(BEAMS)[:, None] * np.arange(ANTENNAS) % BEAMS / BEAMS
        steer = np.exp(-2j * np.pi * turns) * np.kaiser(ANTENNAS, 6.0)
        self.steer_real = self.tf32(steer.real).to(DEVICE)
        self.steer_imag = self.tf32(steer.imag).to(DEVICE)
        self.ranges = SAMPLES // 2
        self.train_cells = (2 * (GUARD + TRAIN) + 1) ** 2 - (2 * GUARD + 1) ** 2

    @staticmethod
    def tf32(x):
        bits = np.ascontiguousarray(x, dtype=np.float32).view(np.int32)
        return torch.from_numpy(((bits + 0x1000) & -0x2000).astype(np.int32).view(np.float32))

    def transform(self, adc):
        signal = torch.empty(adc.shape, device=DEVICE, dtype=torch.float32)
        rows = 4
        window_kernel[(adc.numel() // SAMPLES // rows,)](
            adc, self.range_window, self.doppler_window, signal, CHIRPS, SAMPLES, rows
        )
        return torch.fft.rfftn(signal, dim=(-2, -1)).contiguous()

    def detect(self, spectrum):
        shape = (FRAMES, CHIRPS, self.ranges)
        level_db, outer, inner = torch.empty((3, *shape), device=DEVICE, dtype=torch.float32)
        best = torch.empty(shape, device=DEVICE, dtype=torch.int64)
        hits = torch.empty(shape, device=DEVICE, dtype=torch.int8)
        grid = (FRAMES * CHIRPS,)
        beam_kernel[grid](
            torch.view_as_real(spectrum), self.steer_real, self.steer_imag, level_db, best,
            ANTENNAS, BEAMS, CHIRPS, spectrum.shape[-1], self.ranges, 64, num_warps=8, num_stages=1,
        )  # fmt: skip
        column_sums_kernel[grid](level_db, outer, inner, CHIRPS, self.ranges, GUARD + TRAIN, GUARD)
        hits_kernel[grid](
            level_db, outer, inner, hits, 1.0 / self.train_cells, THRESHOLD_DB, self.ranges, GUARD + TRAIN, GUARD
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
