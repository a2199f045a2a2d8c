"""Kriging of ocean temperature profiles: likelihood of covariance length scales.

Observations at scattered positions, many depths per position. For each length
scale the exact Gaussian-process likelihood is evaluated with a Cholesky factor.
"""

import json
import math
import statistics
import time

import torch

STATIONS = 8192
DEPTHS = 256
NOISE = 0.05
SCALES = 24
BLOCKS = 10
STEPS_PER_BLOCK = 12
DEVICE = "cuda"


def make_observations(generator):
    """Positions in a square basin and smooth temperatures at every depth."""
    position = torch.rand(STATIONS, 3, generator=generator, device=DEVICE)
    waves = torch.randn(3, 96, generator=generator, device=DEVICE) * 6.0
    phase = torch.rand(96, generator=generator, device=DEVICE) * 2 * math.pi
    amplitude = torch.randn(96, DEPTHS, generator=generator, device=DEVICE) * math.sqrt(2 / 96)
    field = torch.cos(position @ waves + phase) @ amplitude
    noise = torch.randn(STATIONS, DEPTHS, generator=generator, device=DEVICE)
    return position, field + math.sqrt(NOISE) * noise


class Likelihood:
    """Negative log likelihood per observation; buffers are reused between evaluations."""

    def __init__(self, position, values):
        self.position = position - position.mean(dim=0)
        self.values = values
        self.covariance = torch.empty(STATIONS, STATIONS, device=DEVICE)
        self.factor = torch.empty(STATIONS, STATIONS, device=DEVICE).mT
        self.info = torch.empty((), dtype=torch.int32, device=DEVICE)
        self.failed = torch.zeros((), dtype=torch.int32, device=DEVICE)
        self.ones = torch.ones(STATIONS, 1, device=DEVICE)

    def squared_exponential(self, scale):
        """exp(-|a - b|^2 / 2 scale^2) as one product of extended coordinates."""
        x = self.position / scale
        half = -0.5 * x.square().sum(dim=1, keepdim=True)
        left = torch.cat([x, half, self.ones], dim=1)
        right = torch.cat([x, self.ones, half], dim=1)
        torch.mm(left, right.T, out=self.covariance)
        self.covariance.exp_()
        self.covariance.diagonal().add_(NOISE)
        return self.covariance

    def __call__(self, scale):
        k = self.squared_exponential(scale)
        torch.linalg.cholesky_ex(k, out=(self.factor, self.info))
        self.failed.add_(self.info.abs())
        white = torch.linalg.solve_triangular(self.factor, self.values, upper=False)
        fit = torch.linalg.vector_norm(white).square() / DEPTHS
        logdet = 2.0 * self.factor.diagonal().log().sum()
        return 0.5 * (fit + logdet) / STATIONS + 0.5 * math.log(2 * math.pi)


def main():
    torch.manual_seed(0)
    generator = torch.Generator(DEVICE).manual_seed(31)
    position, values = make_observations(generator)
    likelihood = Likelihood(position, values)
    scales = [0.05 * 1.12**i for i in range(SCALES)]
    table = torch.zeros(SCALES, device=DEVICE)

    def step(i):
        at = i % SCALES
        table[at] = likelihood(scales[at])

    done = 0
    for _ in range(6):
        step(done)
        done += 1
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    assert likelihood.failed.item() == 0
    best = scales[int(table.argmin())]
    checksum = best + table.mean().item()
    print(
        json.dumps(
            {
                "program": "torch_kriging",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
