"""Ensemble forecast of migrating sand dunes with a learned spectral emulator.

The bed height of 16 ensemble members lives on a periodic grid of 128 x 128
points.  The emulator lifts the bed and the wind forcing to 128 channels, applies
blocks of global spectral filters and pointwise channel networks, and predicts the
change of the bed over half a day.  Features are kept channel first, with the
members and the grid behind.
"""
import json
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MEMBERS = 16
GRID = 128
CHANNELS = 128
HIDDEN = 512
DEPTH = 4
INPUTS = 5
WARMUP = 40
BLOCKS = 10
STEPS_PER_BLOCK = 6


class SpectralFilter(nn.Module):
    def __init__(self):
        super().__init__()
        ky = torch.fft.fftfreq(GRID).reshape(GRID, 1)
        kx = torch.fft.rfftfreq(GRID).reshape(1, GRID // 2 + 1)
        damping = torch.exp(-30.0 * (ky.square() + kx.square()))
        shape = (CHANNELS, 1, GRID, GRID // 2 + 1)
        phase = 0.5 * torch.randn(shape)
        gain = damping * (1.0 + 0.2 * torch.randn(shape))
        self.register_buffer("filter", torch.polar(gain.abs(), phase))

    def forward(self, x):
        spectrum = torch.fft.rfft2(x)
        spectrum.mul_(self.filter)
        return torch.fft.irfft2(spectrum, s=(GRID, GRID))


class DuneBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = SpectralFilter()
        self.expand = nn.Parameter(torch.randn(HIDDEN, CHANNELS) * (1.0 / CHANNELS) ** 0.5)
        self.project = nn.Parameter(torch.randn(CHANNELS, HIDDEN) * (1.0 / HIDDEN) ** 0.5)

    def forward(self, x):
        x = torch.add(x, self.filter(x), alpha=0.5)
        flat = x.reshape(CHANNELS, -1)
        hidden = F.gelu(torch.mm(self.expand, flat), approximate="tanh")
        update = torch.mm(self.project, hidden)
        return torch.add(flat, update, alpha=0.3).reshape(x.shape)


class DuneEmulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Parameter(torch.randn(CHANNELS, INPUTS) * 0.4)
        self.blocks = nn.ModuleList([DuneBlock() for _ in range(DEPTH)])
        self.readout = nn.Parameter(torch.randn(1, CHANNELS) * (0.3 / CHANNELS ** 0.5))

    def forward(self, bed, wind):
        east = torch.roll(bed, 1, dims=2) - bed
        north = torch.roll(bed, 1, dims=1) - bed
        features = torch.stack([bed, east, north, wind[0], wind[1]])
        x = torch.mm(self.lift, features.view(INPUTS, -1))
        x = x.view(CHANNELS, MEMBERS, GRID, GRID)
        for block in self.blocks:
            x = block(x)
        change = torch.mm(self.readout, x.reshape(CHANNELS, -1))
        return torch.tanh(change).view(MEMBERS, GRID, GRID)


def initial_beds(device):
    generator = torch.Generator(device=device).manual_seed(606)
    ticks = torch.arange(GRID, device=device) * (2.0 * math.pi / GRID)
    phase = 2.0 * math.pi * torch.rand(MEMBERS, 1, 1, generator=generator, device=device)
    ridges = torch.sin(6.0 * ticks.reshape(1, 1, GRID) + phase)
    rough = 0.1 * torch.randn(MEMBERS, GRID, GRID, generator=generator, device=device)
    return ridges + rough, phase


def main():
    torch.manual_seed(606)
    device = torch.device("cuda")
    model = DuneEmulator().to(device)
    bed, phase = initial_beds(device)
    ones = torch.ones(MEMBERS, GRID, GRID, device=device)

    step = 0
    heights = []

    def forecast(count):
        nonlocal step, bed
        for _ in range(count):
            angle = 0.07 * step + phase
            wind = (torch.cos(angle) * ones, torch.sin(angle) * ones)
            change = model(bed, wind)
            bed = 0.8 * bed + 0.2 * change
            heights.append(bed.square().mean())
            step += 1

    with torch.no_grad():
        forecast(WARMUP)
        torch.cuda.synchronize()

        times = []
        for _ in range(BLOCKS):
            start = time.perf_counter()
            forecast(STEPS_PER_BLOCK)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    history = torch.stack(heights).double().sqrt()
    result = [float(history[0]), float(history[-20:].mean()), float(bed.double().norm())]
    print(json.dumps({"program": "torch_dune_rollout", "steps": step,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
