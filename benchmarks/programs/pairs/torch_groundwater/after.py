"""Kriging of groundwater heads: monthly maps from a network of observation wells.

The wells keep their places; each month brings a new set of readings (several aquifers at a
time).  The trend is a plane, the residual is kriged with a Matern-3/2 covariance.
"""
import json
import math
import statistics
import time

import torch

N_WELLS = 4096
GRID = 112                 # the map is GRID x GRID nodes
AQUIFERS = 16
EXTENT = 40.0              # kilometres
RANGE_KM = 3.0
SILL, NUGGET = 4.0, 0.2
WARMUP, BLOCKS, PER_BLOCK = 5, 8, 4


def matern32(a, b):
    """Covariance between two sets of places."""
    scaled = torch.cdist(a, b) * (math.sqrt(3.0) / RANGE_KM)
    return SILL * (1.0 + scaled) * torch.exp(-scaled)


def synth_network(device, seed=19):
    gen = torch.Generator().manual_seed(seed)
    towns = EXTENT * torch.rand(60, 2, generator=gen)
    near = towns[torch.randint(60, (N_WELLS // 2,), generator=gen)]
    near = near + 1.2 * torch.randn(near.shape, generator=gen)
    spread = EXTENT * torch.rand(N_WELLS - len(near), 2, generator=gen)
    return torch.cat([near, spread]).clamp_(0.0, EXTENT).to(device)


def synth_months(wells, months, seed=23):
    """Readings [month, well, aquifer]: plane, slow waves, noise of the probe."""
    gen = torch.Generator(device=wells.device).manual_seed(seed)
    phase = 6.28 * torch.rand(months, 1, AQUIFERS, generator=gen, device=wells.device)
    wave = torch.sin(wells[:, :1] / 2.5 + phase) * torch.cos(wells[:, 1:] / 3.5 - phase)
    plane = 90.0 - 0.35 * wells[:, :1] + 0.12 * wells[:, 1:]
    noise = 0.4 * torch.randn(months, N_WELLS, AQUIFERS, generator=gen, device=wells.device)
    return plane + 1.8 * wave + noise


def drift(places):
    """Plane in both coordinates, centred so that the normal equations stay tame."""
    centred = places / EXTENT - 0.5
    return torch.cat([torch.ones_like(centred[:, :1]), centred], dim=1)


class HeadMapper:
    def __init__(self, wells):
        self.wells = wells
        axis = torch.linspace(0.0, EXTENT, GRID, device=wells.device)
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        self.nodes = torch.stack([xx.reshape(-1), yy.reshape(-1)], dim=1)
        self.drift_wells = drift(wells)
        self.drift_nodes = drift(self.nodes)
        # the geometry never changes: factor and covariances hold for all months
        self.lower = self.factorise()
        self.to_nodes = matern32(self.nodes, wells)
        self.solved_drift = torch.cholesky_solve(self.drift_wells, self.lower)
        normal = self.drift_wells.T @ self.solved_drift
        self.normal_lower = torch.linalg.cholesky_ex(normal)[0]

    def factorise(self):
        cov = matern32(self.wells, self.wells)
        cov.diagonal().add_(NUGGET)
        lower, _ = torch.linalg.cholesky_ex(cov)
        return lower

    def universal_kriging(self, heads):
        """Maps [node, aquifer] and the trend from readings [well, aquifer]."""
        solved_heads = torch.cholesky_solve(heads, self.lower)
        trend = torch.cholesky_solve(self.drift_wells.T @ solved_heads, self.normal_lower)
        weights = solved_heads - self.solved_drift @ trend
        return torch.addmm(self.drift_nodes @ trend, self.to_nodes, weights), trend


def main():
    device = torch.device("cuda")
    torch.set_grad_enabled(False)
    wells = synth_network(device)
    steps = WARMUP + BLOCKS * PER_BLOCK
    readings = synth_months(wells, steps)
    mapper = HeadMapper(wells)

    lowest = torch.full((GRID * GRID, AQUIFERS), float("inf"), device=device)
    total = torch.zeros_like(lowest)
    slopes = torch.zeros(3, AQUIFERS, device=device)

    def month(index):
        heads, trend = mapper.universal_kriging(readings[index])
        torch.minimum(lowest, heads, out=lowest)
        total.add_(heads)
        slopes.add_(trend)

    done = 0
    for _ in range(WARMUP):
        month(done)
        done += 1
    torch.cuda.synchronize()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            month(done)
            done += 1
        torch.cuda.synchronize()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    mean_map = total / done
    print(f"{done} months, mean head {mean_map.mean().item():.3f} m")
    print(json.dumps({
        "program": "torch_groundwater",
        "steps": done,
        "us": statistics.median(per_step),
        "result": [mean_map.mean().item(), mean_map.std().item(), lowest.mean().item(),
                   (slopes[1].mean() / done).item()],
    }))


if __name__ == "__main__":
    main()
