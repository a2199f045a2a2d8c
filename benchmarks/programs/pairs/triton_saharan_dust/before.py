"""Transport of a dust outbreak: computational parcels drift with their winds while a haze field spreads on a grid."""
import json
import time

import numpy as np
import torch
import triton
import triton.language as tl

NAME = "triton_saharan_dust"
PARCELS = 32 * 1024 * 1024
CELLS = 8192
EXTENT = 4096.0
WARMUP = 10
BLOCK_STEPS = 10
BLOCKS = 8
SUBSTEPS = 4

# x, y, z, age, mass, diameter, density, temperature,
# wind u, wind v, wind w, settling, source, moisture, charge, albedo
FIELDS = 16
X, Y, WIND_U, WIND_V = 0, 1, 8, 9


@triton.jit
def drift_parcels(parcels, count, seconds, extent, FIELDS: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = p < count
    record = parcels + p * FIELDS
    x = tl.load(record + 0, mask=live, other=0.0)
    y = tl.load(record + 1, mask=live, other=0.0)
    u = tl.load(record + 8, mask=live, other=0.0)
    v = tl.load(record + 9, mask=live, other=0.0)
    x = x + seconds * (u + 0.05 * v)
    y = y + seconds * (v - 0.05 * u)
    x = tl.where(x >= extent, x - extent, x)
    x = tl.where(x < 0.0, x + extent, x)
    y = tl.where(y >= extent, y - extent, y)
    y = tl.where(y < 0.0, y + extent, y)
    tl.store(record + 0, x, mask=live)
    tl.store(record + 1, y, mask=live)


@triton.jit
def spread_haze(haze, out, cells, mixing, courant, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < cells
    here = haze + row * cells + column
    centre = tl.load(here, mask=inside, other=0.0)
    west = tl.load(here - 1, mask=inside & (column > 0), other=0.0)
    east = tl.load(here + 1, mask=column < cells - 1, other=0.0)
    north = tl.load(here - cells, mask=inside & (row > 0), other=0.0)
    south = tl.load(here + cells, mask=inside & (row < cells - 1), other=0.0)
    change = mixing * (west + east + north + south - 4.0 * centre) - courant * (centre - west)
    tl.store(out + row * cells + column, centre + change, mask=inside)


def make_parcels(device):
    generator = torch.Generator(device=device).manual_seed(19)
    parcels = torch.zeros(PARCELS, FIELDS, device=device)
    for field in range(FIELDS):
        values = torch.rand(PARCELS, generator=generator, device=device)
        if field in (X, Y):
            values = values * EXTENT
        elif field in (WIND_U, WIND_V):
            values = 14.0 * values - 4.0
        parcels[:, field] = values
    return parcels


def make_haze(device):
    axis = torch.arange(CELLS, device=device, dtype=torch.float32) / CELLS
    plume = torch.exp(-((axis[:, None] - 0.4) ** 2 + (axis[None, :] - 0.3) ** 2) / 0.02)
    generator = torch.Generator(device=device).manual_seed(23)
    return plume + 0.1 * torch.rand(CELLS, CELLS, generator=generator, device=device)


class DustOutbreak:
    def __init__(self, device):
        self.parcels = make_parcels(device)
        self.haze = make_haze(device)
        self.spare = torch.empty_like(self.haze)

    def step(self):
        block = 512
        drift_parcels[(triton.cdiv(PARCELS, block),)](
            self.parcels, PARCELS, 2.5, EXTENT, FIELDS=FIELDS, BLOCK=block, num_warps=4
        )
        strip = 1024
        for _ in range(SUBSTEPS):
            spread_haze[(CELLS, triton.cdiv(CELLS, strip))](
                self.haze, self.spare, CELLS, 0.15, 0.2, BLOCK=strip, num_warps=4
            )
            self.haze, self.spare = self.spare, self.haze

    def position(self, field):
        return self.parcels[:, field]


def main():
    device = torch.device("cuda")
    outbreak = DustOutbreak(device)
    steps = 0
    for _ in range(WARMUP):
        outbreak.step()
        steps += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            outbreak.step()
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)
    x = outbreak.position(X).double()
    y = outbreak.position(Y).double()
    result = [
        x.mean().item(),
        y.mean().item(),
        (x * y).mean().item(),
        outbreak.haze.double().mean().item(),
    ]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
