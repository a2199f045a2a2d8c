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
BLOCK = 32


def make_volume(generator):
    """Smooth random directions and anisotropy, (1, 4, D, H, W)."""
    coarse = torch.randn(1, 4, 8, 8, 8, generator=generator)
    volume = F.interpolate(coarse, size=(GRID,) * 3, mode="trilinear", align_corners=True)
    direction = F.normalize(volume[:, :3], dim=1)
    anisotropy = torch.sigmoid(2.5 + 1.5 * volume[:, 3:])
    return torch.cat([direction, anisotropy], 1).to(DEVICE)


@triton.jit
def corner(volume, z, y, x, G: tl.constexpr, active):
    """The four channels of a voxel, which lie side by side as two 64-bit words."""
    at = volume + ((z * G + y) * G + x) * 2
    first = tl.load(at, mask=active, other=0)
    second = tl.load(at + 1, mask=active, other=0)
    a = first.to(tl.int32).to(tl.float32, bitcast=True)
    b = (first >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    c = second.to(tl.int32).to(tl.float32, bitcast=True)
    d = (second >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return a, b, c, d


@triton.jit
def sample(volume, px, py, pz, G: tl.constexpr, active):
    """Trilinear, with aligned corners; the points lie inside the volume."""
    fx = (px + 1.0) * 0.5 * (G - 1)
    fy = (py + 1.0) * 0.5 * (G - 1)
    fz = (pz + 1.0) * 0.5 * (G - 1)
    x0 = tl.minimum(tl.maximum(fx.to(tl.int32), 0), G - 1)
    y0 = tl.minimum(tl.maximum(fy.to(tl.int32), 0), G - 1)
    z0 = tl.minimum(tl.maximum(fz.to(tl.int32), 0), G - 1)
    x1 = tl.minimum(x0 + 1, G - 1)
    y1 = tl.minimum(y0 + 1, G - 1)
    z1 = tl.minimum(z0 + 1, G - 1)
    wx = fx - x0.to(tl.float32)
    wy = fy - y0.to(tl.float32)
    wz = fz - z0.to(tl.float32)
    vx = 1.0 - wx
    vy = 1.0 - wy
    vz = 1.0 - wz
    a0, b0, c0, d0 = corner(volume, z0, y0, x0, G, active)
    a1, b1, c1, d1 = corner(volume, z0, y0, x1, G, active)
    a2, b2, c2, d2 = corner(volume, z0, y1, x0, G, active)
    a3, b3, c3, d3 = corner(volume, z0, y1, x1, G, active)
    a4, b4, c4, d4 = corner(volume, z1, y0, x0, G, active)
    a5, b5, c5, d5 = corner(volume, z1, y0, x1, G, active)
    a6, b6, c6, d6 = corner(volume, z1, y1, x0, G, active)
    a7, b7, c7, d7 = corner(volume, z1, y1, x1, G, active)
    w0 = vx * vy * vz
    w1 = wx * vy * vz
    w2 = vx * wy * vz
    w3 = wx * wy * vz
    w4 = vx * vy * wz
    w5 = wx * vy * wz
    w6 = vx * wy * wz
    w7 = wx * wy * wz
    a = a0 * w0 + a1 * w1 + a2 * w2 + a3 * w3 + a4 * w4 + a5 * w5 + a6 * w6 + a7 * w7
    b = b0 * w0 + b1 * w1 + b2 * w2 + b3 * w3 + b4 * w4 + b5 * w5 + b6 * w6 + b7 * w7
    c = c0 * w0 + c1 * w1 + c2 * w2 + c3 * w3 + c4 * w4 + c5 * w5 + c6 * w6 + c7 * w7
    d = d0 * w0 + d1 * w1 + d2 * w2 + d3 * w3 + d4 * w4 + d5 * w5 + d6 * w6 + d7 * w7
    return a, b, c, d


@triton.jit
def grow(
    volume,
    seeds,
    length_ptr,
    points_ptr,
    turned_ptr,
    active_ptr,
    count,
    step_size,
    min_anisotropy,
    max_turn,
    G: tl.constexpr,
    MAX_STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each lane grows one streamline to its end."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = o < count
    px = tl.load(seeds + 3 * o, mask=valid, other=0.0)
    py = tl.load(seeds + 3 * o + 1, mask=valid, other=0.0)
    pz = tl.load(seeds + 3 * o + 2, mask=valid, other=0.0)
    hx, hy, hz, unused = sample(volume, px, py, pz, G, valid)
    length = tl.zeros((BLOCK,), tl.float32)
    active = valid.to(tl.int32)
    turned = tl.zeros((BLOCK,), tl.int32)
    going = tl.max(active, 0)
    n = 0
    while (n < MAX_STEPS) & (going > 0):
        live = active > 0
        dx, dy, dz, anisotropy = sample(volume, px, py, pz, G, live)
        dot = dx * hx + dy * hy + dz * hz
        dx = tl.where(dot > 0, dx, tl.where(dot < 0, -dx, 0.0))
        dy = tl.where(dot > 0, dy, tl.where(dot < 0, -dy, 0.0))
        dz = tl.where(dot > 0, dz, tl.where(dot < 0, -dz, 0.0))
        norm = tl.maximum(tl.sqrt(dx * dx + dy * dy + dz * dz), 1e-12)
        dx = dx / norm
        dy = dy / norm
        dz = dz / norm
        bend = dx * hx + dy * hy + dz * hz
        qx = px + step_size * dx
        qy = py + step_size * dy
        qz = pz + step_size * dz
        sharp = bend < max_turn
        inside = (tl.abs(qx) < 1.0) & (tl.abs(qy) < 1.0) & (tl.abs(qz) < 1.0)
        keep = live & inside & (anisotropy > min_anisotropy) & (bend >= max_turn)
        turned = tl.where(live, sharp.to(tl.int32), turned)
        px = tl.where(keep, qx, px)
        py = tl.where(keep, qy, py)
        pz = tl.where(keep, qz, pz)
        hx = tl.where(keep, dx, hx)
        hy = tl.where(keep, dy, hy)
        hz = tl.where(keep, dz, hz)
        length = tl.where(keep, length + step_size, length)
        active = keep.to(tl.int32)
        going = tl.max(active, 0)
        n += 1
    tl.store(length_ptr + o, length, mask=valid)
    tl.store(points_ptr + 3 * o, px, mask=valid)
    tl.store(points_ptr + 3 * o + 1, py, mask=valid)
    tl.store(points_ptr + 3 * o + 2, pz, mask=valid)
    tl.store(turned_ptr + o, turned.to(tl.int8), mask=valid)
    tl.store(active_ptr + o, active.to(tl.int8), mask=valid)


def track(packed, seeds):
    """Length of each streamline, where it ends, and how many there are of each fate."""
    count = len(seeds)
    length = torch.empty(count, device=seeds.device)
    points = torch.empty_like(seeds)
    turned = torch.empty(count, dtype=torch.int8, device=seeds.device)
    active = torch.empty(count, dtype=torch.int8, device=seeds.device)
    grow[(triton.cdiv(count, BLOCK),)](
        packed,
        seeds,
        length,
        points,
        turned,
        active,
        count,
        STEP_SIZE,
        MIN_ANISOTROPY,
        MAX_TURN,
        G=GRID,
        MAX_STEPS=MAX_STEPS,
        BLOCK=BLOCK,
        num_warps=1,
    )
    return length, points, turned, active


def main():
    generator = torch.Generator().manual_seed(70)
    volume = make_volume(generator)
    # Channels last, two to a 64-bit word: (D, H, W, 2).
    packed = volume[0].permute(1, 2, 3, 0).contiguous().view(torch.int64)
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
