"""Fibre tracking through a field of directions: streamlines grow until they leave the tissue."""

import json
import statistics
import time

import torch
import torch.nn.functional as F

DEVICE = "cuda"
GRID = 96
SEEDS = 60_000
MAX_STEPS = 60
STEP_SIZE = 0.02
MIN_ANISOTROPY = 0.15
MAX_TURN = 0.55
WARMUP, ROUNDS = 3, 36


def make_volume(generator):
    """Smooth random directions and anisotropy, (1, 4, D, H, W)."""
    coarse = torch.randn(1, 4, 8, 8, 8, generator=generator)
    volume = F.interpolate(coarse, size=(GRID,) * 3, mode="trilinear", align_corners=True)
    direction = F.normalize(volume[:, :3], dim=1)
    anisotropy = torch.sigmoid(2.5 + 1.5 * volume[:, 3:])
    return torch.cat([direction, anisotropy], 1).to(DEVICE)


def sample(volume, points):
    out = F.grid_sample(volume, points.view(1, -1, 1, 1, 3), align_corners=True)
    return out.view(4, -1).t()


def track(volume, seeds):
    """Length of each streamline, where it ends, and how many there are of each fate."""
    points = seeds
    heading = sample(volume, points)[:, :3]
    length = torch.zeros(len(points), device=points.device)
    active = torch.ones(len(points), dtype=torch.bool, device=points.device)
    turned = torch.zeros_like(active)
    for _ in range(MAX_STEPS):
        value = sample(volume, points)
        direction, anisotropy = value[:, :3], value[:, 3]
        sign = (direction * heading).sum(1, keepdim=True).sign()
        direction = F.normalize(direction * sign, dim=1)
        bend = (direction * heading).sum(1)
        ahead = points + STEP_SIZE * direction
        sharp = bend < MAX_TURN
        inside = (ahead.abs() < 1).all(1)
        turned |= active & sharp
        active = active & inside & (anisotropy > MIN_ANISOTROPY) & ~sharp
        points = torch.where(active[:, None], ahead, points)
        heading = torch.where(active[:, None], direction, heading)
        length = length + STEP_SIZE * active
    return length, points, turned, active


def main():
    generator = torch.Generator().manual_seed(70)
    volume = make_volume(generator)
    seeds = [(torch.rand(SEEDS, 3, generator=generator) * 1.8 - 0.9).to(DEVICE) for _ in range(3)]
    times = []
    for number in range(WARMUP + ROUNDS):
        start = time.perf_counter()
        length, points, turned, active = track(volume, seeds[number % 3])
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    result = [
        length.double().mean().item(),
        points.double().abs().mean().item(),
        turned.double().mean().item(),
        active.double().mean().item(),
    ]
    us = statistics.median(times[WARMUP:]) * 1e6
    print(f"mean length {result[0]:.4f}, {SEEDS / us:.2f} streamlines a microsecond")
    out = {"program": "torch_streamlines", "steps": len(times), "us": us, "result": result}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
