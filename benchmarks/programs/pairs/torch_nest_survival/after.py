"""Posterior of a nest survival model by Stein variational gradient descent.

Daily survival of nests follows a logistic regression on 64 habitat covariates
with a normal prior.  A cloud of particles is moved towards the posterior; each
step uses the gradient of the log posterior on a minibatch of nest checks and a
radial kernel between the particles.
"""
import json
import math
import time

import numpy as np
import torch

PARTICLES = 4096
COVARIATES = 64
CHECKS = 16384
MINIBATCH = 2048
PRIOR_VARIANCE = 1.0
RATE = 0.02
WARMUP = 60
BLOCKS = 10
STEPS_PER_BLOCK = 10


def nest_checks(seed, device):
    generator = torch.Generator(device=device).manual_seed(seed)
    habitat = torch.randn(CHECKS, COVARIATES, generator=generator, device=device)
    habitat[:, 0] = 1.0
    effect = 0.4 * torch.randn(COVARIATES, generator=generator, device=device)
    chance = torch.sigmoid(habitat @ effect + 1.2)
    survived = (torch.rand(CHECKS, generator=generator, device=device) < chance).float()
    return habitat, survived


class SteinSampler:
    def __init__(self, habitat, survived, seed):
        device = habitat.device
        generator = torch.Generator(device=device).manual_seed(seed)
        self.habitat = habitat
        self.survived = survived
        self.particles = torch.randn(PARTICLES, COVARIATES, generator=generator, device=device)
        self.second_moment = torch.zeros_like(self.particles)
        self.count = 0

    def score(self):
        first = (self.count * MINIBATCH) % CHECKS
        x = self.habitat[first:first + MINIBATCH]
        y = self.survived[first:first + MINIBATCH]
        chance = torch.sigmoid(torch.mm(self.particles, x.t()))
        likelihood = torch.mm(y - chance, x)
        scale = 0.02 * CHECKS / MINIBATCH
        return likelihood * scale - self.particles / PRIOR_VARIANCE

    def kernel(self):
        x = self.particles
        squared = torch.cdist(x, x).square()
        bandwidth = squared[::16, 1::16].median() / math.log(PARTICLES + 1.0)
        return torch.exp(squared / -bandwidth), bandwidth

    def step(self):
        x = self.particles
        kernel, bandwidth = self.kernel()
        attract = torch.mm(kernel, self.score())
        repulse = (x * kernel.sum(dim=1, keepdim=True) - torch.mm(kernel, x)) * (2.0 / bandwidth)
        direction = (attract + repulse) / PARTICLES
        self.second_moment.mul_(0.9).addcmul_(direction, direction, value=0.1)
        self.particles = x + RATE * direction / (self.second_moment.sqrt() + 0.05)
        self.count += 1


def main():
    device = torch.device("cuda")
    habitat, survived = nest_checks(333, device)
    sampler = SteinSampler(habitat, survived, 334)

    def run(count):
        for _ in range(count):
            sampler.step()

    with torch.no_grad():
        run(WARMUP)
        torch.cuda.synchronize()

        times = []
        for _ in range(BLOCKS):
            start = time.perf_counter()
            run(STEPS_PER_BLOCK)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

        mean = sampler.particles.double().mean(dim=0)
        spread = sampler.particles.double().std(dim=0)
    result = [float(mean.norm()), float(spread.mean())]
    print(json.dumps({"program": "torch_nest_survival", "steps": sampler.count,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
