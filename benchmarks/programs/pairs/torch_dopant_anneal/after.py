"""Annealing of implanted silicon: four dopant-defect pairs diffuse in a block of crystal and recombine."""
import json
import math
import time

import numpy as np
import torch

NAME = "torch_dopant_anneal"
PAIRS = 4
CELLS = 192
SPACING = 0.5
DT = 0.02
WARMUP = 8
BLOCK = 5
BLOCKS = 8


def axis_propagator(diffusivity, leak, device):
    """exp(dt D d2/dx2) on one axis, with a loss through both end faces."""
    matrix = torch.zeros(CELLS, CELLS, dtype=torch.float64)
    index = torch.arange(CELLS)
    matrix[index, index] = -2.0
    matrix[index[1:], index[:-1]] = 1.0
    matrix[index[:-1], index[1:]] = 1.0
    matrix[0, 0] = -1.0 - leak
    matrix[-1, -1] = -1.0 - leak
    propagator = torch.linalg.matrix_exp(matrix * (diffusivity * DT / SPACING**2))
    return propagator.float().to(device)


def implanted(device):
    generator = torch.Generator(device=device).manual_seed(101)
    depth = torch.arange(CELLS, device=device, dtype=torch.float32)
    field = torch.rand(2 * PAIRS, CELLS, CELLS, CELLS, generator=generator, device=device)
    for kind in range(2 * PAIRS):
        profile = torch.exp(-((depth - 30.0 - 6.0 * kind) ** 2) / (2 * 14.0**2))
        field[kind] *= profile[:, None, None]
    return field


class AnnealedBlock:
    def __init__(self, device):
        self.field = implanted(device)
        self.along_z = axis_propagator(1.8, 0.20, device)
        self.along_y = axis_propagator(1.5, 0.02, device)
        self.along_x = axis_propagator(1.5, 0.02, device)
        self.source = 1e-4 * implanted(device).flip(1).contiguous()
        self.recombined = torch.zeros(PAIRS, CELLS, CELLS, CELLS, device=device)
        self.rate = 0.35 * DT

    def diffuse(self, field):
        kinds = field.shape[0]
        columns = field.view(kinds, CELLS, CELLS * CELLS)
        columns = torch.bmm(self.along_z.expand(kinds, CELLS, CELLS), columns)
        rows = columns.view(kinds * CELLS, CELLS, CELLS)
        rows = torch.bmm(self.along_y.expand(kinds * CELLS, CELLS, CELLS), rows)
        field = rows.view(kinds, CELLS, CELLS, CELLS)
        return field @ self.along_x.T

    def recombine(self, field):
        vacancies = field[:PAIRS]
        interstitials = field[PAIRS:]
        lost = torch.mul(vacancies, interstitials).mul_(self.rate)
        vacancies.sub_(lost)
        interstitials.sub_(lost)
        self.recombined.add_(lost)

    def step(self):
        field = self.diffuse(self.field)
        self.recombine(field)
        field.add_(self.source)
        self.field = field


def sheet_resistance(block):
    active = block.field[:PAIRS].double().sum(dim=(0, 2, 3))
    mobility = 1.0 / (1.0 + torch.sqrt(active / active.max()))
    return 1.0 / (active * mobility).sum().item() * CELLS * CELLS


@torch.no_grad()
def main():
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    block = AnnealedBlock(device)
    steps = 0
    for _ in range(WARMUP):
        block.step()
        steps += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            block.step()
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)
    result = [
        block.field.double().mean().item(),
        block.field.norm().item() / math.sqrt(block.field.numel()),
        block.recombined.double().mean().item(),
        sheet_resistance(block),
    ]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
