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


def stream(f):
    return torch.stack([torch.roll(f[i], (CY[i], CX[i]), (0, 1)) for i in range(9)])


@torch.no_grad()
def main():
    y, x = torch.meshgrid(torch.arange(NY), torch.arange(NX), indexing="ij")
    solid = ((x - NX // 4).square() + (y - NY // 2).square() < (NY // 10) ** 2).to(DEVICE)
    wave = 1 + 0.001 * torch.sin(2 * torch.pi * y / NY)
    f = torch.stack([W[i] * (1 + 3 * CX[i] * SPEED) * wave for i in range(9)]).to(DEVICE)

    def advance(f):
        return stream(collide(f, solid))

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
