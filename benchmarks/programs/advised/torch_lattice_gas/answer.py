"""Lattice Boltzmann flow past a cylinder (D2Q9) in PyTorch."""

import json
import statistics
import time

import torch
import triton
import triton.language as tl

DEVICE = "cuda"
NX = 2048
NY = 1024
OMEGA = 1.2
SPEED = 0.05
WARMUP = 5
BLOCKS = 8
STEPS_PER_BLOCK = 10

CX = [0, 1, 0, -1, 0, 1, -1, -1, 1]
W = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4
BLOCK = 256


@triton.jit
def relax(own, opposite, solid, rho, ux, uy, square, CX: tl.constexpr, CY: tl.constexpr, W, omega):
    """One population after the collision; bounce back inside the cylinder."""
    cu = 3.0 * (CX * ux + CY * uy)
    equilibrium = W * rho * (1.0 + cu + 0.5 * cu * cu - square)
    return tl.where(solid, opposite, own + omega * (equilibrium - own))


@triton.jit
def collide_and_stream(
    f, out, solid_ptr, omega, W0, W1, W2, NX: tl.constexpr, NY: tl.constexpr, BLOCK: tl.constexpr
):
    """Relax towards equilibrium, and push each population to its neighbour: one pass over f."""
    PLANE: tl.constexpr = NX * NY
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.program_id(1)
    at = y * NX + x
    f0 = tl.load(f + at)
    f1 = tl.load(f + PLANE + at)
    f2 = tl.load(f + 2 * PLANE + at)
    f3 = tl.load(f + 3 * PLANE + at)
    f4 = tl.load(f + 4 * PLANE + at)
    f5 = tl.load(f + 5 * PLANE + at)
    f6 = tl.load(f + 6 * PLANE + at)
    f7 = tl.load(f + 7 * PLANE + at)
    f8 = tl.load(f + 8 * PLANE + at)
    solid = tl.load(solid_ptr + at) != 0
    rho = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8
    ux = (f1 - f3 + f5 - f6 - f7 + f8) / rho
    uy = (f2 - f4 + f5 + f6 - f7 - f8) / rho
    square = 1.5 * (ux * ux + uy * uy)
    east = (x + 1) % NX
    west = (x + NX - 1) % NX
    here = y * NX
    north = ((y + 1) % NY) * NX
    south = ((y + NY - 1) % NY) * NX
    o0 = relax(f0, f0, solid, rho, ux, uy, square, 0, 0, W0, omega)
    o1 = relax(f1, f3, solid, rho, ux, uy, square, 1, 0, W1, omega)
    o2 = relax(f2, f4, solid, rho, ux, uy, square, 0, 1, W1, omega)
    o3 = relax(f3, f1, solid, rho, ux, uy, square, -1, 0, W1, omega)
    o4 = relax(f4, f2, solid, rho, ux, uy, square, 0, -1, W1, omega)
    o5 = relax(f5, f7, solid, rho, ux, uy, square, 1, 1, W2, omega)
    o6 = relax(f6, f8, solid, rho, ux, uy, square, -1, 1, W2, omega)
    o7 = relax(f7, f5, solid, rho, ux, uy, square, -1, -1, W2, omega)
    o8 = relax(f8, f6, solid, rho, ux, uy, square, 1, -1, W2, omega)
    tl.store(out + at, o0)
    tl.store(out + PLANE + here + east, o1)
    tl.store(out + 2 * PLANE + north + x, o2)
    tl.store(out + 3 * PLANE + here + west, o3)
    tl.store(out + 4 * PLANE + south + x, o4)
    tl.store(out + 5 * PLANE + north + east, o5)
    tl.store(out + 6 * PLANE + north + west, o6)
    tl.store(out + 7 * PLANE + south + west, o7)
    tl.store(out + 8 * PLANE + south + east, o8)


@torch.no_grad()
def main():
    y, x = torch.meshgrid(torch.arange(NY), torch.arange(NX), indexing="ij")
    solid = ((x - NX // 4).square() + (y - NY // 2).square() < (NY // 10) ** 2).to(DEVICE)
    wave = 1 + 0.001 * torch.sin(2 * torch.pi * y / NY)
    f = torch.stack([W[i] * (1 + 3 * CX[i] * SPEED) * wave for i in range(9)]).to(DEVICE)

    f = f.contiguous()
    solid = solid.to(torch.uint8).contiguous()
    spare = torch.empty_like(f)
    launch = collide_and_stream[(NX // BLOCK, NY)]

    def advance(f):
        nonlocal spare
        out = spare
        launch(f, out, solid, OMEGA, W[0], W[1], W[5], NX=NX, NY=NY, BLOCK=BLOCK, num_warps=8)
        spare = f
        return out

    for _ in range(WARMUP):
        f = advance(f)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            f = advance(f)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"mass {f.sum().item():.1f}, {NX * NY / times[-1] / 1e6:.0f} MLUPS")
    momentum = (f[1] - f[3] + f[5] - f[6] - f[7] + f[8]).double()
    out = {
        "program": "torch_lattice_gas",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [f.double().mean().item(), momentum.mean().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
