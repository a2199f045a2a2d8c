"""Surface charges on a set of electrode plates by the boundary element method.

Six square plates are divided into panels; the dense Green's matrix couples the
charge of each panel with the potential at each panel centre.  Each step solves
for the charges that belong to one set of electrode voltages and evaluates the
capacitive load and the field at a row of probes.
"""
import json
import math
import time

import numpy as np
import torch

PLATES = 6
SIDE = 32
PANEL = 0.25e-3
ITERATIONS = 40
PATTERNS = 64
WARMUP = 200
BLOCKS = 10
STEPS_PER_BLOCK = 10
COULOMB = 8.9875517923e9
CHARGE_UNIT = 1.0e-12


def plate_panels():
    ticks = (torch.arange(SIDE, dtype=torch.float64) + 0.5) * PANEL
    u, v = torch.meshgrid(ticks, ticks, indexing="ij")
    gap = 2.0e-3
    plates = []
    for k in range(PLATES):
        shift_x = (k % 2) * (SIDE * PANEL + gap)
        shift_z = (k // 2) * gap
        z = torch.full_like(u, shift_z)
        plates.append(torch.stack([u + shift_x, v, z], dim=-1).reshape(-1, 3))
    return torch.cat(plates)


def green_matrix(centres):
    distance = torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist")
    self_term = 4.0 * math.log(1.0 + math.sqrt(2.0)) / PANEL
    distance.fill_diagonal_(1.0 / self_term)
    return (COULOMB * CHARGE_UNIT / distance).float()


def electrode_patterns(seed, device):
    generator = torch.Generator().manual_seed(seed)
    volts = torch.empty(PATTERNS, PLATES).uniform_(-50.0, 50.0, generator=generator)
    ripple = 0.02 * torch.randn(PATTERNS, PLATES * SIDE * SIDE, generator=generator)
    return (volts.repeat_interleave(SIDE * SIDE, dim=1) + ripple).to(device)


class ChargeSolver:
    def __init__(self, green):
        self.green = green
        self.count = green.shape[0]

    def solve(self, potential):
        charge = torch.zeros_like(potential)
        residual = potential.clone()
        direction = residual.clone()
        rr = torch.dot(residual, residual)
        for _ in range(ITERATIONS):
            image = torch.mv(self.green, direction)
            alpha = rr / torch.dot(direction, image)
            charge.addcmul_(direction, alpha)
            residual.addcmul_(image, alpha, value=-1.0)
            rr_next = torch.dot(residual, residual)
            beta = rr_next / rr
            direction.mul_(beta).add_(residual)
            rr = rr_next
        return charge, rr


def probe_kernel(centres, device):
    probes = torch.zeros(256, 3, dtype=torch.float64)
    probes[:, 0] = torch.linspace(0.0, 2.0 * SIDE * PANEL, 256)
    probes[:, 1] = 0.5 * SIDE * PANEL
    probes[:, 2] = 1.0e-3
    offset = probes[:, None, :] - centres[None, :, :]
    cubed = offset.square().sum(-1).pow(1.5)
    field = COULOMB * CHARGE_UNIT * offset[..., 2] / cubed
    return field.float().to(device)


def main():
    device = torch.device("cuda")
    centres = plate_panels()
    green = green_matrix(centres.to(device))
    field_kernel = probe_kernel(centres, device)
    patterns = electrode_patterns(90210, device)
    solver = ChargeSolver(green)

    load = torch.zeros(PATTERNS, device=device)
    field = torch.zeros(PATTERNS, 256, device=device)
    leftover = torch.zeros(PATTERNS, device=device)
    step = 0

    def run(count):
        nonlocal step
        for _ in range(count):
            k = step % PATTERNS
            potential = patterns[k]
            charge, rr = solver.solve(potential)
            load[k] = torch.dot(charge, potential)
            field[k] = torch.mv(field_kernel, charge)
            leftover[k] = rr
            step += 1

    run(WARMUP)
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(STEPS_PER_BLOCK)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    scale = patterns.square().sum(1)
    print("largest relative residual", float((leftover / scale).max().sqrt()))
    result = [float(load.double().mean()), float(load.double().std()),
              float(field.double().norm())]
    print(json.dumps({"program": "torch_electrode_charges", "steps": step,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
