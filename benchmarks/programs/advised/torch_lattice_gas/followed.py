"""Lattice Boltzmann flow past a cylinder (D2Q9) in PyTorch."""

import json
import statistics
import time

import torch

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
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]


def collide(f, solid):
    """Relax towards equilibrium; bounce back inside the cylinder."""
    rho = f[0] + f[1] + f[2] + f[3] + f[4] + f[5] + f[6] + f[7] + f[8]
    ux = (f[1] - f[3] + f[5] - f[6] - f[7] + f[8]) / rho
    uy = (f[2] - f[4] + f[5] + f[6] - f[7] - f[8]) / rho
    square = 1.5 * (ux * ux + uy * uy)
    out = []
    for i in range(9):
        cu = 3.0 * (CX[i] * ux + CY[i] * uy)
        equilibrium = W[i] * rho * (1.0 + cu + 0.5 * cu * cu - square)
        relaxed = f[i] + OMEGA * (equilibrium - f[i])
        out.append(torch.where(solid, f[OPPOSITE[i]], relaxed))
    return torch.stack(out)


def shift(a, dy, dx):
    if dy:
        a = torch.roll(a, dy, 0)
    if dx:
        a = torch.roll(a, dx, 1)
    return a


def stream(g):
    return [shift(g[i], CY[i], CX[i]) for i in range(9)]


@torch.compile(fullgraph=True, dynamic=False)
def advance(g, solid):
    """Stream, then collide: every site pulls from its neighbours, in one fused kernel."""
    return collide(stream(g), solid)


@torch.no_grad()
def main():
    y, x = torch.meshgrid(torch.arange(NY), torch.arange(NX), indexing="ij")
    solid = ((x - NX // 4).square() + (y - NY // 2).square() < (NY // 10) ** 2).to(DEVICE)
    wave = 1 + 0.001 * torch.sin(2 * torch.pi * y / NY)
    f = torch.stack([W[i] * (1 + 3 * CX[i] * SPEED) * wave for i in range(9)]).to(DEVICE)

    # The state is kept after its collision: (stream collide)^n = stream (collide stream)^(n-1)
    # collide. The first collision lies in the warm-up, the last streaming after the loop.
    g = collide(f, solid)
    for _ in range(WARMUP - 1):
        g = advance(g, solid)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            g = advance(g, solid)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"mass {g.sum().item():.1f}, {NX * NY / times[-1] / 1e6:.0f} MLUPS")
    f = torch.stack(stream(g))
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
