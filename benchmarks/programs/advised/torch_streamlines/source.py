"""Fibre tracking through a field of directions: streamlines grow until they leave the tissue."""

import json
import statistics
import time

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

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


@triton.jit
def corner(words_ptr, index, mask, weight, dx, dy, dz, da):
    """Add one weighted voxel; its four channels are two 8-byte words."""
    first = tl.load(words_ptr + index * 2, mask=mask, other=0)
    second = tl.load(words_ptr + index * 2 + 1, mask=mask, other=0)
    dx += weight * first.to(tl.int32).to(tl.float32, bitcast=True)
    dy += weight * (first >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    dz += weight * second.to(tl.int32).to(tl.float32, bitcast=True)
    da += weight * (second >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return dx, dy, dz, da


@triton.jit
def sample(words_ptr, x, y, z, mask, GRID: tl.constexpr):
    """Trilinear sample; masked-in points lie inside the volume."""
    px = (x + 1.0) * (0.5 * (GRID - 1))
    py = (y + 1.0) * (0.5 * (GRID - 1))
    pz = (z + 1.0) * (0.5 * (GRID - 1))
    ix = tl.minimum(px.to(tl.int32), GRID - 2)
    iy = tl.minimum(py.to(tl.int32), GRID - 2)
    iz = tl.minimum(pz.to(tl.int32), GRID - 2)
    fx = px - ix.to(tl.float32)
    fy = py - iy.to(tl.float32)
    fz = pz - iz.to(tl.float32)
    gx = 1.0 - fx
    gy = 1.0 - fy
    gz = 1.0 - fz
    at = (iz * GRID + iy) * GRID + ix
    dx = x * 0.0
    dy = x * 0.0
    dz = x * 0.0
    da = x * 0.0
    up = at + GRID * GRID
    dx, dy, dz, da = corner(words_ptr, at, mask, gx * gy * gz, dx, dy, dz, da)
    dx, dy, dz, da = corner(words_ptr, at + 1, mask, fx * gy * gz, dx, dy, dz, da)
    dx, dy, dz, da = corner(words_ptr, at + GRID, mask, gx * fy * gz, dx, dy, dz, da)
    dx, dy, dz, da = corner(words_ptr, at + GRID + 1, mask, fx * fy * gz, dx, dy, dz, da)
    dx, dy, dz, da = corner(words_ptr, up, mask, gx * gy * fz, dx, dy, dz, da)
    dx, dy, dz, da = corner(words_ptr, up + 1, mask, fx * gy * fz, dx, dy, dz, da)
    dx, dy, dz, da = corner(words_ptr, up + GRID, mask, gx * fy * fz, dx, dy, dz, da)
    dx, dy, dz, da = corner(words_ptr, up + GRID + 1, mask, fx * fy * fz, dx, dy, dz, da)
    return dx, dy, dz, da


@triton.jit
def track_kernel(
    words_ptr, seeds_ptr, length_ptr, points_ptr, turned_ptr, active_ptr, n,
    step_size, min_anisotropy, max_turn,
    MAX_STEPS: tl.constexpr, GRID: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    seed = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = seed < n
    x = tl.load(seeds_ptr + seed * 3, mask=valid, other=0.0)
    y = tl.load(seeds_ptr + seed * 3 + 1, mask=valid, other=0.0)
    z = tl.load(seeds_ptr + seed * 3 + 2, mask=valid, other=0.0)
    hx, hy, hz, ha = sample(words_ptr, x, y, z, valid, GRID)
    length = tl.zeros((BLOCK,), dtype=tl.float32)
    active = valid.to(tl.int32)
    turned = tl.zeros((BLOCK,), dtype=tl.int32)
    live = tl.max(active, axis=0)
    number = 0
    while (number < MAX_STEPS) & (live > 0):
        on = active > 0
        dx, dy, dz, da = sample(words_ptr, x, y, z, on, GRID)
        dot = dx * hx + dy * hy + dz * hz
        sign = tl.where(dot > 0, 1.0, tl.where(dot < 0, -1.0, 0.0))
        norm = tl.maximum(tl.sqrt(dx * dx + dy * dy + dz * dz), 1e-12)
        scale = sign / norm
        dx *= scale
        dy *= scale
        dz *= scale
        bend = dx * hx + dy * hy + dz * hz
        nx = x + step_size * dx
        ny = y + step_size * dy
        nz = z + step_size * dz
        sharp = bend < max_turn
        inside = (tl.abs(nx) < 1.0) & (tl.abs(ny) < 1.0) & (tl.abs(nz) < 1.0)
        keep = on & inside & (da > min_anisotropy) & (bend >= max_turn)
        turned = tl.where(on, sharp.to(tl.int32), turned)
        x = tl.where(keep, nx, x)
        y = tl.where(keep, ny, y)
        z = tl.where(keep, nz, z)
        hx = tl.where(keep, dx, hx)
        hy = tl.where(keep, dy, hy)
        hz = tl.where(keep, dz, hz)
        length = tl.where(keep, length + step_size, length)
        active = keep.to(tl.int32)
        live = tl.max(active, axis=0)
        number += 1
    tl.store(length_ptr + seed, length, mask=valid)
    tl.store(points_ptr + seed * 3, x, mask=valid)
    tl.store(points_ptr + seed * 3 + 1, y, mask=valid)
    tl.store(points_ptr + seed * 3 + 2, z, mask=valid)
    tl.store(turned_ptr + seed, turned.to(tl.uint8), mask=valid)
    tl.store(active_ptr + seed, active.to(tl.uint8), mask=valid)


def track(words, seeds):
    """Length of each streamline, where it ends, and how many there are of each fate."""
    count = len(seeds)
    length = torch.empty(count, device=seeds.device)
    points = torch.empty_like(seeds)
    fate = torch.empty(2, count, dtype=torch.uint8, device=seeds.device)
    turned, active = fate[0], fate[1]
    block = 32
    track_kernel[(triton.cdiv(count, block),)](
        words, seeds, length, points, turned, active, count,
        STEP_SIZE, MIN_ANISOTROPY, MAX_TURN,
        MAX_STEPS=MAX_STEPS, GRID=GRID, BLOCK=block, num_warps=1,
    )  # fmt: skip
    return length, points, turned.view(torch.bool), active.view(torch.bool)


def main():
    generator = torch.Generator().manual_seed(70)
    volume = make_volume(generator)
    # Channels last, (D, H, W, 2) words of 8 bytes: one voxel's channels lie together.
    words = volume[0].permute(1, 2, 3, 0).contiguous().view(torch.int64)
    seeds = [(torch.rand(SEEDS, 3, generator=generator) * 1.8 - 0.9).to(DEVICE) for _ in range(3)]
    times = []
    for number in range(WARMUP + ROUNDS):
        start = time.perf_counter()
        length, points, turned, active = track(words, seeds[number % 3])
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
