"""Synthetic stellar spectra from a residual emulator with periodic units.

The emulator maps atmospheric parameters (temperature, gravity, abundances)
to the flux in wavelength bins; a survey pipeline evaluates it on large
batches of candidate parameters and compares them with an observed spectrum.
"""
import json
import statistics
import time

import torch
from torch import nn

PROGRAM = "torch_stellar_flux"
PARAMETERS = 32
WIDTH = 2560
DEPTH = 10
BINS = 512
CANDIDATES = 49152
BATCHES = 4
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 6


@torch.compile
def periodic_residual(h, skip, gain, shift, frequency, scale):
    y = h * gain + shift
    y = y + torch.sin(frequency * y).square() / frequency
    return skip + scale * y


class PeriodicBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        self.gain = nn.Parameter(1.0 + 0.1 * torch.randn(width))
        self.shift = nn.Parameter(0.1 * torch.randn(width))
        self.frequency = nn.Parameter(1.0 + torch.rand(width))
        self.scale = nn.Parameter(torch.full((width,), 0.25))

    def forward(self, x):
        return periodic_residual(self.linear(x), x, self.gain, self.shift,
                                 self.frequency, self.scale)


class FluxEmulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(PARAMETERS, WIDTH)
        self.blocks = nn.ModuleList([PeriodicBlock(WIDTH) for _ in range(DEPTH)])
        self.flux = nn.Linear(WIDTH, BINS)

    def forward(self, parameters):
        x = self.lift(parameters)
        for block in self.blocks:
            x = block(x)
        return self.flux(x)


def make_candidates(generator, device):
    batches = []
    for _ in range(BATCHES):
        uniform = torch.rand(CANDIDATES, PARAMETERS, generator=generator, device=device)
        batches.append((2.0 * uniform - 1.0).to(torch.bfloat16))
    return batches


@torch.no_grad()
def main():
    device = torch.device("cuda")
    torch.manual_seed(1054)
    generator = torch.Generator(device=device).manual_seed(1054)
    emulator = FluxEmulator().to(device).to(torch.bfloat16).eval()
    candidates = make_candidates(generator, device)
    observed = torch.randn(BINS, generator=generator, device=device)
    inverse_sigma = 0.5 + torch.rand(BINS, generator=generator, device=device)

    def step(index):
        flux = emulator(candidates[index % BATCHES])
        residual = (flux.float() - observed) * inverse_sigma
        chi2 = residual.square().mean(dim=1)
        return flux, chi2

    for index in range(WARMUP):
        flux, chi2 = step(index)
    torch.cuda.synchronize()

    times = []
    index = WARMUP
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            flux, chi2 = step(index)
            index += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    result = [chi2.mean().item(), flux.float().abs().mean().item(), flux.float().std().item()]
    print(json.dumps({"program": PROGRAM, "steps": index,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
