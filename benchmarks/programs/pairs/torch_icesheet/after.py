"""Shallow-ice evolution of a synthetic ice cap (explicit finite differences).

The flow is the usual n = 3 shallow-ice law with sliding folded into an effective
diffusivity.  One step advances the cap by one model year in a few sub-steps and keeps a
running record of volume and area.
"""
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F

NY, NX = 3072, 3072
CELL = 250.0            # metres
SUBSTEPS = 2
DT = 1.0 / SUBSTEPS     # years
RATE = 2.0e-8           # 2 A (rho g)^3 / 5, stiffer than real ice to keep the step stable
WARMUP, BLOCKS, PER_BLOCK = 6, 8, 4


class Climate:
    """Surface mass balance (m of ice per year) of a given year."""

    def __init__(self, surface0, device):
        yy = torch.linspace(-1, 1, NY)[:, None]
        xx = torch.linspace(-1, 1, NX)[None, :]
        radius = torch.sqrt(xx * xx + yy * yy)
        accumulation = 0.6 * torch.exp(-1.5 * radius) + 0.05 * torch.cos(9 * xx) * torch.cos(7 * yy)
        melt_factor = 0.9 * torch.sigmoid(6 * (radius - 0.75)) + 0.02
        self.accumulation = accumulation.to(device)
        self.melt_factor = melt_factor.to(device)
        self.reference = surface0.to(device)

    def balance(self, year, surface):
        """Accumulation less melt; melt falls with elevation above the reference surface."""
        warm = 1.0 + 0.3 * math.sin(0.4 * year)
        lapse = (self.reference - surface).mul_(6.5e-3).add_(warm)
        return torch.addcmul(self.accumulation, self.melt_factor, lapse, value=-1.0)


def synth_bed(seed=3):
    gen = torch.Generator().manual_seed(seed)
    rough = torch.randn(1, 1, 48, 48, generator=gen)
    bed = F.interpolate(rough, size=(NY, NX), mode="bicubic", align_corners=False)[0, 0]
    yy = torch.linspace(-1, 1, NY)[:, None]
    xx = torch.linspace(-1, 1, NX)[None, :]
    dome = 1.0 - (xx * xx + yy * yy)
    thickness = 1500.0 * torch.sqrt(dome.clamp(min=0.0))
    return 60.0 * bed, thickness


def flux_divergence(surface, thickness):
    """Divergence of the ice flux on the interior, zero on the rim."""
    # staggered slopes and thickness at the corners of the cells
    dx_edge = (surface[:, 1:] - surface[:, :-1]) / CELL
    dy_edge = (surface[1:, :] - surface[:-1, :]) / CELL
    sx = 0.5 * (dx_edge[1:, :] + dx_edge[:-1, :])
    sy = 0.5 * (dy_edge[:, 1:] + dy_edge[:, :-1])
    h = F.avg_pool2d(thickness[None, None], 2, stride=1)[0, 0]
    diffusivity = RATE * h.square().square() * h * (sx.square() + sy.square())
    diffusivity.clamp_(max=2.0e4)
    qx = 0.5 * (diffusivity[1:, :] + diffusivity[:-1, :]) * dx_edge[1:-1, :]
    qy = 0.5 * (diffusivity[:, 1:] + diffusivity[:, :-1]) * dy_edge[:, 1:-1]
    return (qx[:, 1:] - qx[:, :-1] + qy[1:, :] - qy[:-1, :]) / CELL


def advance_year(year, bed, thickness, climate, volume, area):
    surface = bed + thickness
    balance = climate.balance(year, surface)[1:-1, 1:-1]
    inner = thickness[1:-1, 1:-1]
    for _ in range(SUBSTEPS):
        inner.add_(flux_divergence(surface, thickness) + balance, alpha=DT).clamp_(min=0.0)
        torch.add(bed, thickness, out=surface)
    volume[year] = thickness.mean()
    area[year] = (thickness > 1.0).float().mean()


def main():
    torch.set_grad_enabled(False)
    device = torch.device("cuda")
    bed_cpu, thickness_cpu = synth_bed()
    climate = Climate(bed_cpu + thickness_cpu, device)
    bed, thickness = bed_cpu.to(device), thickness_cpu.to(device)

    steps = WARMUP + BLOCKS * PER_BLOCK
    volume = torch.zeros(steps, device=device)
    area = torch.zeros(steps, device=device)
    year = 0
    for _ in range(WARMUP):
        advance_year(year, bed, thickness, climate, volume, area)
        year += 1
    torch.cuda.synchronize()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            advance_year(year, bed, thickness, climate, volume, area)
            year += 1
        torch.cuda.synchronize()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    print(f"mean thickness {volume[0].item():.2f} m -> {volume[-1].item():.2f} m")
    print(json.dumps({
        "program": "torch_icesheet",
        "steps": year,
        "us": statistics.median(per_step),
        "result": [volume[-1].item(), area[-1].item(), thickness.max().item()],
    }))


if __name__ == "__main__":
    main()
