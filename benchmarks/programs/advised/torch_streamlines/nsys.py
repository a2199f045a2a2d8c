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


def pack(volume):
    """The volume with its four channels side by side, (D, H, W, 2) pairs of floats."""
    return volume[0].permute(1, 2, 3, 0).contiguous().view(torch.int64)


@triton.jit
def corner(volume, index, mask):
    """The four channels of one voxel, read as two pairs."""
    a = tl.load(volume + 2 * index, mask=mask, other=0)
    b = tl.load(volume + 2 * index + 1, mask=mask, other=0)
    a0 = a.to(tl.int32).to(tl.float32, bitcast=True)
    a1 = (a >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    b0 = b.to(tl.int32).to(tl.float32, bitcast=True)
    b1 = (b >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return a0, a1, b0, b1


@triton.jit
def pair(volume, index, t, mask):
    """Between a voxel and its neighbour along x."""
    p0, p1, p2, p3 = corner(volume, index, mask)
    q0, q1, q2, q3 = corner(volume, index + 1, mask)
    s = 1.0 - t
    return p0 * s + q0 * t, p1 * s + q1 * t, p2 * s + q2 * t, p3 * s + q3 * t


@triton.jit
def sample(volume, x, y, z, mask, SIDE: tl.constexpr):
    """Trilinear; all points lie inside the volume."""
    fx = (x + 1.0) * 0.5 * (SIDE - 1)
    fy = (y + 1.0) * 0.5 * (SIDE - 1)
    fz = (z + 1.0) * 0.5 * (SIDE - 1)
    ix = tl.minimum(fx.to(tl.int32), SIDE - 2)
    iy = tl.minimum(fy.to(tl.int32), SIDE - 2)
    iz = tl.minimum(fz.to(tl.int32), SIDE - 2)
    tx = fx - ix.to(tl.float32)
    ty = fy - iy.to(tl.float32)
    tz = fz - iz.to(tl.float32)
    index = (iz * SIDE + iy) * SIDE + ix
    a0, a1, a2, a3 = pair(volume, index, tx, mask)
    b0, b1, b2, b3 = pair(volume, index + SIDE, tx, mask)
    c0, c1, c2, c3 = pair(volume, index + SIDE * SIDE, tx, mask)
    d0, d1, d2, d3 = pair(volume, index + SIDE * SIDE + SIDE, tx, mask)
    wa = (1.0 - ty) * (1.0 - tz)
    wb = ty * (1.0 - tz)
    wc = (1.0 - ty) * tz
    wd = ty * tz
    return (
        a0 * wa + b0 * wb + c0 * wc + d0 * wd,
        a1 * wa + b1 * wb + c1 * wc + d1 * wd,
        a2 * wa + b2 * wb + c2 * wc + d2 * wd,
        a3 * wa + b3 * wb + c3 * wc + d3 * wd,
    )


@triton.jit
def follow(
    volume,
    seeds,
    lengths,
    points,
    turns,
    actives,
    count,
    SIDE: tl.constexpr,
    LIMIT: tl.constexpr,
    STRIDE: tl.constexpr,
    LEAST: tl.constexpr,
    BEND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each lane follows one streamline to its end."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < count
    x = tl.load(seeds + 3 * lane, mask=valid, other=0.0)
    y = tl.load(seeds + 3 * lane + 1, mask=valid, other=0.0)
    z = tl.load(seeds + 3 * lane + 2, mask=valid, other=0.0)
    hx, hy, hz, _ = sample(volume, x, y, z, valid, SIDE)
    length = tl.zeros([BLOCK], tl.float32)
    turned = tl.zeros([BLOCK], tl.int32)
    active = valid.to(tl.int32)
    for _step in range(LIMIT):
        on = active != 0
        dx, dy, dz, anisotropy = sample(volume, x, y, z, on, SIDE)
        along = dx * hx + dy * hy + dz * hz
        sign = tl.where(along > 0, 1.0, tl.where(along < 0, -1.0, 0.0))
        norm = tl.maximum(tl.sqrt(dx * dx + dy * dy + dz * dz), 1e-12)
        scale = sign / norm
        dx = dx * scale
        dy = dy * scale
        dz = dz * scale
        bend = dx * hx + dy * hy + dz * hz
        nx = x + STRIDE * dx
        ny = y + STRIDE * dy
        nz = z + STRIDE * dz
        sharp = bend < BEND
        inside = (tl.abs(nx) < 1.0) & (tl.abs(ny) < 1.0) & (tl.abs(nz) < 1.0)
        keep = on & inside & (anisotropy > LEAST) & (bend >= BEND)
        turned = tl.where(on, sharp.to(tl.int32), turned)
        x = tl.where(keep, nx, x)
        y = tl.where(keep, ny, y)
        z = tl.where(keep, nz, z)
        hx = tl.where(keep, dx, hx)
        hy = tl.where(keep, dy, hy)
        hz = tl.where(keep, dz, hz)
        length = tl.where(keep, length + STRIDE, length)
        active = keep.to(tl.int32)
    tl.store(lengths + lane, length, mask=valid)
    tl.store(points + 3 * lane, x, mask=valid)
    tl.store(points + 3 * lane + 1, y, mask=valid)
    tl.store(points + 3 * lane + 2, z, mask=valid)
    tl.store(turns + lane, turned.to(tl.uint8), mask=valid)
    tl.store(actives + lane, active.to(tl.uint8), mask=valid)


def track(packed, seeds):
    """Length of each streamline, where it ends, and how many there are of each fate."""
    count = len(seeds)
    points = torch.empty_like(seeds)
    length = torch.empty(count, device=seeds.device)
    turned = torch.empty(count, dtype=torch.uint8, device=seeds.device)
    active = torch.empty(count, dtype=torch.uint8, device=seeds.device)
    follow[(triton.cdiv(count, 32),)](
        packed,
        seeds,
        length,
        points,
        turned,
        active,
        count,
        SIDE=GRID,
        LIMIT=MAX_STEPS,
        STRIDE=STEP_SIZE,
        LEAST=MIN_ANISOTROPY,
        BEND=MAX_TURN,
        BLOCK=32,
        num_warps=1,
    )
    return length, points, turned.view(torch.bool), active.view(torch.bool)


def main():
    generator = torch.Generator().manual_seed(70)
    packed = pack(make_volume(generator))
    seeds = [(torch.rand(SEEDS, 3, generator=generator) * 1.8 - 0.9).to(DEVICE) for _ in range(3)]
    times = []
    for number in range(WARMUP + ROUNDS):
        start = time.perf_counter()
        length, points, turned, active = track(packed, seeds[number % 3])
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
