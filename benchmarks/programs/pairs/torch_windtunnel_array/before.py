"""Acoustic source maps of a wing model in a wind tunnel from a microphone array."""
import json
import math
import time

import numpy as np
import torch

SEED = 5309
DEVICE = torch.device("cuda")
MICROPHONES = 32
WINDOW = 512
FRAMES = 64
BINS = 256
GRID_X = 24
GRID_Y = 16
RATE = 48_000.0
SOUND_SPEED = 343.0
DISTANCE = 1.2
RECORDINGS = 8
WARMUP = 200
BLOCKS = 10
PER_BLOCK = 10


def array_layout(rng):
    """Spiral arms of microphones in the tunnel wall."""
    arm = np.arange(MICROPHONES) % 8
    ring = np.arange(MICROPHONES) // 8
    radius = 0.08 + 0.11 * ring
    angle = 2.0 * math.pi * arm / 8 + 0.35 * ring + rng.normal(0.0, 0.01, MICROPHONES)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def scan_grid():
    gx, gy = np.meshgrid(np.linspace(-0.6, 0.6, GRID_X), np.linspace(-0.4, 0.4, GRID_Y))
    return np.stack([gx.ravel(), gy.ravel()], axis=1)


def travel_times(points, microphones):
    offset = points[:, None, :] - microphones[None, :, :]
    return np.sqrt((offset ** 2).sum(-1) + DISTANCE ** 2) / SOUND_SPEED


def steering(delays, frequencies):
    """Phase weights, one (point, microphone) matrix for every frequency."""
    phase = 2.0 * math.pi * frequencies[:, None, None] * delays[None]
    return torch.from_numpy((np.exp(1j * phase) / MICROPHONES).astype(np.complex64))


def make_recordings(rng, delays):
    """Pressure at the microphones: three sources on the wing and flow noise."""
    samples = WINDOW * FRAMES
    axis = np.fft.rfftfreq(samples, 1.0 / RATE)
    sources = [40, 171, 300]
    recordings = []
    for _ in range(RECORDINGS):
        pressure = rng.normal(0.0, 1.0, (MICROPHONES, samples))
        for level, point in zip((2.0, 1.2, 0.8), sources):
            spectrum = np.fft.rfft(rng.normal(0.0, level, samples))
            shifted = spectrum[None] * np.exp(-2j * math.pi * axis[None] * delays[point][:, None])
            pressure += np.fft.irfft(shifted, n=samples, axis=1)
        recordings.append(torch.from_numpy(pressure.astype(np.float32)))
    return torch.stack(recordings).to(DEVICE)


class SourceMapper:
    def __init__(self):
        rng = np.random.default_rng(SEED)
        delays = travel_times(scan_grid(), array_layout(rng))
        frequencies = np.fft.rfftfreq(WINDOW, 1.0 / RATE)[1:BINS + 1]
        self.steer = steering(delays, frequencies).to(DEVICE)
        loudness = 1.0 / (1.0 + ((frequencies - 6000.0) / 5000.0) ** 2)
        self.weight = torch.from_numpy(loudness.astype(np.float32)).to(DEVICE)
        self.recordings = make_recordings(rng, delays)
        self.window = torch.hann_window(WINDOW, device=DEVICE)
        self.average = torch.zeros(GRID_X * GRID_Y, device=DEVICE)
        self.steps = 0

    def spectra(self, pressure):
        frames = pressure.view(MICROPHONES, FRAMES, WINDOW) * self.window
        spectrum = torch.fft.rfft(frames, dim=-1)[..., 1:BINS + 1]
        return spectrum.permute(2, 0, 1).contiguous()

    def source_map(self, spectra):
        total = torch.zeros(GRID_X * GRID_Y, device=DEVICE)
        for k in range(BINS):
            beams = self.steer[k] @ spectra[k]
            power = beams.abs().square().mean(dim=1)
            total += self.weight[k] * power
        return total / BINS

    def step(self):
        spectra = self.spectra(self.recordings[self.steps % RECORDINGS])
        self.average.lerp_(self.source_map(spectra), 0.1)
        self.steps += 1


@torch.no_grad()
def main():
    mapper = SourceMapper()

    for _ in range(WARMUP):
        mapper.step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            mapper.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    print(json.dumps({
        "program": "torch_windtunnel_array",
        "steps": mapper.steps,
        "us": float(np.median(times)),
        "result": [mapper.average.mean().item(), mapper.average.max().item(),
                   mapper.average.std().item()],
    }))


if __name__ == "__main__":
    main()
