"""Density image of a volcano dome from muon counts, with bootstrap replicates.

Each step draws one replicate of the opacities and inverts it with damped
least squares (CGLS); the spread over replicates gives the error bars.
"""
import json
import statistics
import time

import torch

PROGRAM = "torch_muon_volcano"
RAYS, VOXELS = 2048, 4096
ITERATIONS = 24
DAMPING = 25.0
WARMUP, BLOCKS, BLOCK = 6, 8, 5
SEED = 1902


def build_ray_lengths(device, gen):
    """Length of each line of sight in each voxel (hundreds of metres)."""
    hit = torch.rand(RAYS, VOXELS, device=device, generator=gen) < 0.06
    length = 0.5 + torch.rand(RAYS, VOXELS, device=device, generator=gen)
    return torch.where(hit, length, torch.zeros_like(length))


def dome_density(device):
    """A layered dome with a lighter conduit, as a flat vector of voxels."""
    side = 16
    z, y, x = torch.meshgrid(*(torch.linspace(-1, 1, side, device=device),) * 3, indexing="ij")
    rho = 2.4 - 0.25 * z
    rho = torch.where(x * x + y * y < 0.06, rho - 0.7, rho)
    return rho.reshape(-1)


def draw_replicate(opacity, sigma, gen):
    noise = torch.randn(opacity.shape, device=opacity.device, generator=gen)
    return opacity + sigma * noise


def invert(lengths, lengths_t, data, prior, tol=1e-8):
    """CGLS for min |A x - d|^2 + damping |x - prior|^2."""
    x = torch.zeros_like(prior)
    r = data - lengths @ prior
    s = lengths_t @ r
    p = s.clone()
    gamma = float(s @ s)
    start = float(r @ r)
    history = []
    for _ in range(ITERATIONS):
        q = lengths @ p
        curvature = float(q @ q) + DAMPING * float(p @ p)
        alpha = gamma / curvature
        x.add_(p, alpha=alpha)
        r.sub_(q, alpha=alpha)
        misfit = float(r @ r)
        history.append(misfit)
        if misfit < tol * start:
            break
        s = torch.addmv(x, lengths_t, r, beta=-DAMPING)
        gamma_new = float(s @ s)
        p = s.add_(p, alpha=gamma_new / gamma)
        gamma = gamma_new
    return prior + x, history


class Spread:
    """Running mean and variance of the density image."""

    def __init__(self, like):
        self.total = torch.zeros_like(like)
        self.square = torch.zeros_like(like)
        self.count = 0

    def add(self, image):
        self.total += image
        self.square.addcmul_(image, image)
        self.count += 1

    def summary(self):
        mean = self.total / self.count
        var = (self.square / self.count - mean * mean).clamp_min(0)
        return float(mean.mean()), float(var.mean().sqrt())


def main():
    device = torch.device("cuda")
    gen = torch.Generator(device=device).manual_seed(SEED)
    lengths = build_ray_lengths(device, gen)
    lengths_t = lengths.t().contiguous()
    opacity = lengths @ dome_density(device)
    sigma = 0.02 * opacity.mean()
    prior = torch.full((VOXELS,), 2.3, device=device)
    spread = Spread(prior)
    last = []

    def step():
        data = draw_replicate(opacity, sigma, gen)
        image, history = invert(lengths, lengths_t, data, prior)
        spread.add(image)
        return history

    for _ in range(WARMUP):
        last = step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(BLOCK):
            last = step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / BLOCK)

    mean, deviation = spread.summary()
    print(f"{spread.count} replicates, density {mean:.4f} +- {deviation:.4f} g/cm3")
    print(json.dumps({"program": PROGRAM, "steps": WARMUP + BLOCKS * BLOCK,
                      "us": statistics.median(times) * 1e6,
                      "result": [mean, deviation, float(last[0]), float(last[-1])]}))


if __name__ == "__main__":
    main()
