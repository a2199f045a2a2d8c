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
    out = F.grid_sample(volume, points.reshape(1, -1, 1, 1, 3), align_corners=True)
    return out.view(4, -1).t()


@torch.compile(mode="reduce-overhead", dynamic=False)
def track(volume, seeds):
    """Length of each streamline, where it ends, and how many there are of each fate.

    All streamlines take part in each pass, those that ended under a mask: the host waits for
    nothing, and the whole loop is one CUDA graph.
    """
    points = seeds.clone()
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
        here = points + STEP_SIZE * direction
        sharp = bend < MAX_TURN
        inside = (here.abs() < 1).all(1)
        keep = inside & (anisotropy > MIN_ANISOTROPY) & ~sharp
        turned = turned | (active & sharp)
        active = active & keep
        moves = active.unsqueeze(1)
        points = torch.where(moves, here, points)
        heading = torch.where(moves, direction, heading)
        length = torch.where(active, length + STEP_SIZE, length)
    return length, points, turned, active


@torch.no_grad()
def main():
    generator = torch.Generator().manual_seed(70)
    volume = make_volume(generator)
    seeds = [(torch.rand(SEEDS, 3, generator=generator) * 1.8 - 0.9).to(DEVICE) for _ in range(3)]
    times = []
    for number in range(WARMUP + ROUNDS):
        start = time.perf_counter()
        torch.compiler.cudagraph_mark_step_begin()
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
