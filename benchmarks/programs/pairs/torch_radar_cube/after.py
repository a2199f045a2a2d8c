"""FMCW radar: range, Doppler and angle transforms of a MIMO cube, then CFAR detection."""

import json
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F

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


class RadarProcessor:
    def __init__(self):
        self.range_window = torch.from_numpy(np.hanning(SAMPLES)).float().to(DEVICE)
        self.doppler_window = torch.from_numpy(np.hamming(CHIRPS)).float().to(DEVICE)[:, None]
        self.angle_window = (
            torch.from_numpy(np.kaiser(ANTENNAS, 6.0)).float().to(DEVICE)[:, None, None]
        )
        width = 2 * (GUARD + TRAIN) + 1
        kernel = torch.ones(width, width)
        kernel[TRAIN:-TRAIN, TRAIN:-TRAIN] = 0
        self.cfar_kernel = (kernel / kernel.sum())[None, None].to(DEVICE)

    def transform(self, adc):
        signal = adc.float() * self.range_window
        spectrum = torch.fft.rfft(signal, dim=-1)[..., :-1]
        spectrum = torch.fft.fft(spectrum * self.doppler_window, dim=-2)
        spectrum = torch.fft.fftshift(spectrum, dim=-2)
        return torch.fft.fft(spectrum * self.angle_window, n=BEAMS, dim=-3)

    def detect(self, beams):
        power = beams.real.square() + beams.imag.square()
        level, best = power.max(dim=1)
        level_db = 10 * torch.log10(level + 1.0)
        noise = F.conv2d(level_db[:, None].float(), self.cfar_kernel, padding=GUARD + TRAIN)[:, 0]
        hits = level_db > noise + THRESHOLD_DB
        return level_db, best, hits


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
