"""Radiated power in a fusion plasma from bolometer lines of sight.

The response of 4096 lines of sight to 16384 plasma cells is computed once from
the viewing geometry.  Windows of measured frames are inverted by maximum
likelihood expectation maximisation, all frames of a window at once; the total
radiated power and the centre of emission are kept for each frame.
"""
import json
import time

import numpy as np
import torch

LINES = 4096
GRID = 128
CELLS = GRID * GRID
FRAMES = 512
WINDOWS = 4
SWEEPS = 8
WARMUP = 12
BLOCKS = 8
STEPS_PER_BLOCK = 4


def viewing_geometry(seed, device):
    generator = torch.Generator(device=device).manual_seed(seed)
    angle = torch.rand(LINES, 1, generator=generator, device=device) * np.pi
    offset = (torch.rand(LINES, 1, generator=generator, device=device) - 0.5) * 1.8
    width = 0.02 + 0.02 * torch.rand(LINES, 1, generator=generator, device=device)
    ticks = torch.linspace(-1.0, 1.0, GRID, device=device)
    yy, xx = torch.meshgrid(ticks, ticks, indexing="ij")
    x = xx.reshape(1, -1)
    y = yy.reshape(1, -1)
    distance = torch.cos(angle) * x + torch.sin(angle) * y - offset
    response = torch.exp(-0.5 * (distance / width).square()) + 1.0e-4
    return response / response.sum(dim=1, keepdim=True)


def plasma_frames(response, seed):
    device = response.device
    generator = torch.Generator(device=device).manual_seed(seed)
    ticks = torch.linspace(-1.0, 1.0, GRID, device=device)
    yy, xx = torch.meshgrid(ticks, ticks, indexing="ij")
    x = xx.reshape(-1, 1)
    y = yy.reshape(-1, 1)
    windows = torch.empty(WINDOWS, LINES, FRAMES, pin_memory=True)
    for w in range(WINDOWS):
        place = 0.4 * torch.randn(2, FRAMES, generator=generator, device=device)
        size = 0.15 + 0.2 * torch.rand(FRAMES, generator=generator, device=device)
        power = 1.0 + torch.rand(FRAMES, generator=generator, device=device)
        radius = (x - place[0]).square() + (y - place[1]).square()
        emission = power * torch.exp(-0.5 * radius / size.square()) + 0.02
        signal = response @ emission
        noise = torch.randn(LINES, FRAMES, generator=generator, device=device)
        windows[w].copy_(signal * (1.0 + 0.01 * noise).clamp_min(0.5))
    return windows


class Inversion:
    def __init__(self, response, device):
        self.device = device
        self.response = response.to(device)
        self.coverage = response.sum(dim=0).unsqueeze(1).to(device)
        ticks = torch.linspace(-1.0, 1.0, GRID, device=device)
        self.height = ticks.repeat_interleave(GRID).unsqueeze(0)

    def reconstruct(self, signal):
        response = self.response
        emission = torch.ones(CELLS, signal.shape[1], device=self.device)
        for _ in range(SWEEPS):
            ratio = signal / torch.mm(response, emission)
            emission.mul_(torch.mm(response.t(), ratio)).div_(self.coverage)
        return emission

    def summary(self, emission):
        total = emission.sum(dim=0)
        centre = torch.mm(self.height, emission).squeeze(0) / total
        return total, centre


def main():
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    response = viewing_geometry(1958, device)
    windows = plasma_frames(response, 1959)
    inversion = Inversion(response, device)
    del response
    totals = torch.zeros(WINDOWS, FRAMES, device=device)
    centres = torch.zeros(WINDOWS, FRAMES, device=device)

    step = 0

    def run(count):
        nonlocal step
        for _ in range(count):
            w = step % WINDOWS
            signal = windows[w].to(device, non_blocking=True)
            emission = inversion.reconstruct(signal)
            totals[w], centres[w] = inversion.summary(emission)
            step += 1

    run(WARMUP)
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(STEPS_PER_BLOCK)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    result = [float(totals.double().mean()), float(totals.double().std()),
              float(centres.double().norm())]
    print(json.dumps({"program": "torch_bolometer_mlem", "steps": step,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
