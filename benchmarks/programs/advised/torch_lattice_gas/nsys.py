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
CY = [0, 0, 1, 0, -1, 1, 1, -1, -1]
W = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


BLOCK = 256  # one cell a thread, so that the shifted stores stay coalesced


@triton.jit
def relax(f, bounced, solid, cu, weighted, square, OMEGA: tl.constexpr):
    """Relax towards equilibrium; bounce back inside the cylinder."""
    equilibrium = weighted * (1.0 + cu + 0.5 * cu * cu - square)
    return tl.where(solid, bounced, f + OMEGA * (equilibrium - f))


@triton.jit
def advance_kernel(
    src, dst, solid_ptr, OMEGA: tl.constexpr, NX: tl.constexpr, NY: tl.constexpr, BLOCK: tl.constexpr
):
    """Collide in registers, and store each population where it streams to."""
    PLANE: tl.constexpr = NX * NY
    pid = tl.program_id(0)
    y = pid // (NX // BLOCK)
    x = (pid % (NX // BLOCK)) * BLOCK + tl.arange(0, BLOCK)
    east = (x + 1) % NX
    west = (x + NX - 1) % NX
    here = y * NX
    north = ((y + 1) % NY) * NX
    south = ((y + NY - 1) % NY) * NX
    at = here + x
    solid = tl.load(solid_ptr + at) != 0
    f0 = tl.load(src + 0 * PLANE + at)
    f1 = tl.load(src + 1 * PLANE + at)
    f2 = tl.load(src + 2 * PLANE + at)
    f3 = tl.load(src + 3 * PLANE + at)
    f4 = tl.load(src + 4 * PLANE + at)
    f5 = tl.load(src + 5 * PLANE + at)
    f6 = tl.load(src + 6 * PLANE + at)
    f7 = tl.load(src + 7 * PLANE + at)
    f8 = tl.load(src + 8 * PLANE + at)
    rho = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8
    inverse = 1.0 / rho
    ux = (f1 - f3 + f5 - f6 - f7 + f8) * inverse
    uy = (f2 - f4 + f5 + f6 - f7 - f8) * inverse
    square = 1.5 * (ux * ux + uy * uy)
    ux3 = 3.0 * ux
    uy3 = 3.0 * uy
    rest = rho * (4.0 / 9.0)
    straight = rho * (1.0 / 9.0)
    diagonal = rho * (1.0 / 36.0)
    g0 = relax(f0, f0, solid, 0.0 * ux3, rest, square, OMEGA)
    g1 = relax(f1, f3, solid, ux3, straight, square, OMEGA)
    g2 = relax(f2, f4, solid, uy3, straight, square, OMEGA)
    g3 = relax(f3, f1, solid, -ux3, straight, square, OMEGA)
    g4 = relax(f4, f2, solid, -uy3, straight, square, OMEGA)
    g5 = relax(f5, f7, solid, ux3 + uy3, diagonal, square, OMEGA)
    g6 = relax(f6, f8, solid, uy3 - ux3, diagonal, square, OMEGA)
    g7 = relax(f7, f5, solid, -ux3 - uy3, diagonal, square, OMEGA)
    g8 = relax(f8, f6, solid, ux3 - uy3, diagonal, square, OMEGA)
    tl.store(dst + 0 * PLANE + here + x, g0)
    tl.store(dst + 1 * PLANE + here + east, g1)
    tl.store(dst + 2 * PLANE + north + x, g2)
    tl.store(dst + 3 * PLANE + here + west, g3)
    tl.store(dst + 4 * PLANE + south + x, g4)
    tl.store(dst + 5 * PLANE + north + east, g5)
    tl.store(dst + 6 * PLANE + north + west, g6)
    tl.store(dst + 7 * PLANE + south + west, g7)
    tl.store(dst + 8 * PLANE + south + east, g8)


@torch.no_grad()
def main():
    y, x = torch.meshgrid(torch.arange(NY), torch.arange(NX), indexing="ij")
    solid = ((x - NX // 4).square() + (y - NY // 2).square() < (NY // 10) ** 2).to(DEVICE)
    wave = 1 + 0.001 * torch.sin(2 * torch.pi * y / NY)
    f = torch.stack([W[i] * (1 + 3 * CX[i] * SPEED) * wave for i in range(9)]).to(DEVICE)

    f = f.contiguous()
    spare = torch.empty_like(f)
    mask = solid.contiguous().view(torch.uint8)
    grid = (NX * NY // BLOCK,)

    def advance(f, spare):
        advance_kernel[grid](f, spare, mask, OMEGA, NX, NY, BLOCK, num_warps=BLOCK // 32)
        return spare, f

    for _ in range(WARMUP):
        f, spare = advance(f, spare)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            f, spare = advance(f, spare)
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
