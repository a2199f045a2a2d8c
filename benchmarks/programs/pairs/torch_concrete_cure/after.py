"""Temperature in curing concrete test cubes: heat of hydration and split axis diffusion."""
import json
import math
import time

import numpy as np
import torch

SEED = 88
DEVICE = torch.device("cuda")
CUBES = 512
CELLS = 64
SIDE = 0.6              # m
DIFFUSIVITY = 9.0e-7    # m2/s
SURFACE = 4.0           # heat transfer to the air over conductivity, 1/m
DT = 120.0              # s
AIR = 12.0              # degrees C
WARMUP = 100
BLOCKS = 10
PER_BLOCK = 10


def axis_operator(insulated_start):
    """Exact propagator of one axis over one time step, with exchange at the faces."""
    h = SIDE / CELLS
    lap = torch.zeros(CELLS, CELLS, dtype=torch.float64)
    inner = torch.arange(CELLS - 1)
    lap[inner, inner + 1] = 1.0
    lap[inner + 1, inner] = 1.0
    lap -= torch.diag(lap.sum(dim=1))
    loss = h * SURFACE / (1.0 + 0.5 * h * SURFACE)
    if not insulated_start:
        lap[0, 0] -= loss
    lap[-1, -1] -= loss
    return torch.matrix_exp(lap * (DIFFUSIVITY * DT / h ** 2)).float().to(DEVICE)


def make_casting():
    """Initial excess temperature and the binder content of each cube."""
    rng = np.random.default_rng(SEED)
    axis = torch.linspace(0.0, 1.0, CELLS, device=DEVICE)
    lift = torch.from_numpy(rng.uniform(4.0, 9.0, CUBES).astype(np.float32)).to(DEVICE)
    binder = torch.from_numpy(rng.uniform(0.8, 1.2, CUBES).astype(np.float32)).to(DEVICE)
    generator = torch.Generator(device=DEVICE).manual_seed(SEED)
    shape = (CUBES, CELLS, CELLS, CELLS)
    content = torch.rand(shape, generator=generator, device=DEVICE)
    content.mul_(0.4).add_(0.8).mul_(binder.view(-1, 1, 1, 1))
    layers = 1.0 + 0.1 * torch.sin(14.0 * axis)
    content.mul_(layers.view(1, 1, 1, -1))
    temperature = lift.view(-1, 1, 1, 1).expand(shape).contiguous()
    temperature.add_(0.5 * torch.cos(9.0 * axis).view(1, -1, 1, 1))
    return temperature, content


class CuringModel:
    def __init__(self):
        self.along_x = axis_operator(insulated_start=False)
        self.along_y = axis_operator(insulated_start=False)
        self.along_z = axis_operator(insulated_start=True)
        self.temperature, self.content = make_casting()
        self.steps = 0

    def heat_rate(self):
        """Adiabatic temperature rise per step for mean binder content."""
        hours = self.steps * DT / 3600.0
        return 0.08 * math.exp(-((hours - 9.0) / 8.0) ** 2)

    def diffuse_x(self, field):
        operator = self.along_x.expand(CUBES, CELLS, CELLS)
        planes = torch.bmm(operator, field.view(CUBES, CELLS, CELLS * CELLS))
        return planes.view(field.shape)

    def diffuse_y(self, field):
        operator = self.along_y.expand(CUBES * CELLS, CELLS, CELLS)
        planes = torch.bmm(operator, field.view(CUBES * CELLS, CELLS, CELLS))
        return planes.view(field.shape)

    def diffuse_z(self, field):
        return torch.matmul(field, self.along_z.t())

    def step(self):
        self.temperature.add_(self.content, alpha=self.heat_rate())
        field = self.diffuse_x(self.temperature)
        field = self.diffuse_y(field)
        self.temperature = self.diffuse_z(field)
        self.steps += 1


@torch.no_grad()
def main():
    model = CuringModel()

    for _ in range(WARMUP):
        model.step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            model.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    mean = AIR + model.temperature.mean().item()
    peak = AIR + model.temperature.max().item()
    centre = CELLS // 2
    core = AIR + model.temperature[:, centre, centre, centre].mean().item()
    print(json.dumps({
        "program": "torch_concrete_cure",
        "steps": model.steps,
        "us": float(np.median(times)),
        "result": [mean, peak, core],
    }))


if __name__ == "__main__":
    main()
