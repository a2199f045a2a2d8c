"""FMCW radar: range, Doppler and angle transforms of a MIMO cube, then CFAR detection."""

import json
import statistics
import sys
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


def compiled(function):
    """The function compiled into fused kernels; as it is, where that fails."""
    fast = torch.compile(function, dynamic=False)

    def call(*args):
        nonlocal fast
        if fast is not function:
            try:
                return fast(*args)
            except Exception as error:
                print(f"{function.__name__} is not compiled: {error}", file=sys.stderr)
                fast = function
        return function(*args)

    return call


@compiled
def apply_window(adc, window):
    return adc.float() * window


@compiled
def strongest(parts):
    """Power and index of the strongest beam, from real and imaginary parts."""
    power = parts[..., 0].square() + parts[..., 1].square()
    return power.max(dim=1)


class RadarProcessor:
    def __init__(self):
        # Windows of range and Doppler in one. The alternating sign of the chirps shifts the Doppler
        # spectrum by half its length, which is what fftshift does.
        sign = 1.0 - 2.0 * (np.arange(CHIRPS) % 2)
        window = (np.hamming(CHIRPS) * sign)[:, None] * np.hanning(SAMPLES)
        self.window = torch.from_numpy(window).float().to(DEVICE)
        # Zero-padded Fourier transform over the antennas, window included, as a matrix.
        turns = np.outer(np.arange(BEAMS), np.arange(ANTENNAS)) % BEAMS / BEAMS
        steering = np.exp(-2j * np.pi * turns) * np.kaiser(ANTENNAS, 6.0)
        steering = torch.from_numpy(steering.astype(np.complex64)).to(DEVICE)
        self.steering = steering.expand(FRAMES, -1, -1).contiguous()

    def transform(self, adc):
        spectrum = torch.fft.rfft2(apply_window(adc, self.window))
        return torch.bmm(self.steering, spectrum.reshape(FRAMES, ANTENNAS, -1))

    def cfar(self, level_db):
        """Mean of the training cells: the outer square's sum less the guard square's."""
        outer, inner = 2 * (GUARD + TRAIN) + 1, 2 * GUARD + 1
        image = level_db[:, None]
        total = F.avg_pool2d(image, (1, outer), 1, (0, outer // 2), divisor_override=1)
        total = F.avg_pool2d(total, (outer, 1), 1, (outer // 2, 0), divisor_override=1)
        guard = F.avg_pool2d(image, inner, 1, inner // 2, divisor_override=1)
        return ((total - guard) / (outer**2 - inner**2))[:, 0]

    def detect(self, beams):
        level, best = strongest(torch.view_as_real(beams))
        # The last range bin is dropped here, where the arrays are small.
        level = level.view(FRAMES, CHIRPS, -1)[..., :-1]
        best = best.view(FRAMES, CHIRPS, -1)[..., :-1]
        level_db = 10 * torch.log10(level + 1.0)
        hits = level_db > self.cfar(level_db) + THRESHOLD_DB
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
