"""Absorption of a disordered aggregate of dye molecules.

Molecules at random positions are coupled by their transition dipoles. The
recursion (Haydock) method started from the bright state of a polarisation
gives the coefficients of a continued fraction for the absorption spectrum.
"""
import json
import math
import statistics
import time

import numpy as np
import torch

PROGRAM = "torch_exciton_recursion"
MOLECULES = 8192
RECURSION = 40
WARMUP = 10
BLOCKS = 10
STEPS_PER_BLOCK = 10


def make_aggregate(device):
    generator = torch.Generator(device=device).manual_seed(77)
    positions = 60.0 * torch.rand(MOLECULES, 3, generator=generator, device=device)
    dipoles = torch.randn(MOLECULES, 3, generator=generator, device=device)
    dipoles[:, 2] += 1.5
    dipoles = dipoles / dipoles.norm(dim=1, keepdim=True)
    energies = 0.8 * torch.randn(MOLECULES, generator=generator, device=device)
    return positions, dipoles, energies


def build_hamiltonian(positions, dipoles, energies, rows=1024):
    count = positions.shape[0]
    hamiltonian = torch.empty(count, count, device=positions.device)
    for first in range(0, count, rows):
        part = slice(first, first + rows)
        delta = positions[part, None, :] - positions[None, :, :]
        distance2 = delta.square().sum(dim=2) + 1.5
        inverse = distance2.rsqrt()
        along_row = (delta * dipoles[part, None, :]).sum(dim=2) * inverse
        along_column = (delta * dipoles[None, :, :]).sum(dim=2) * inverse
        overlap = dipoles[part] @ dipoles.T
        hamiltonian[part] = 2.0 * (overlap - 3.0 * along_row * along_column) * inverse ** 3
    hamiltonian.diagonal().copy_(energies)
    return hamiltonian


def recursion_coefficients(hamiltonian, start, depth):
    """Diagonal and off-diagonal coefficients of the tridiagonal chain."""
    diagonal = []
    coupling = []
    v = start / start.norm()
    v_previous = torch.zeros_like(v)
    b = 0.0
    for _ in range(depth):
        w = torch.mv(hamiltonian, v)
        a = torch.dot(w, v)
        w = w - a * v - b * v_previous
        b = w.norm()
        diagonal.append(a)
        coupling.append(b)
        v_previous = v
        v = w / b
    return torch.stack(diagonal), torch.stack(coupling)


def spectrum(diagonal, coupling, energies, width=0.15):
    z = energies + 1j * width
    fraction = np.zeros_like(z)
    for a, b in zip(diagonal[::-1], coupling[::-1]):
        fraction = 1.0 / (z - a - b * b * fraction)
    return -fraction.imag / math.pi


def main():
    device = torch.device("cuda")
    positions, dipoles, energies = make_aggregate(device)
    hamiltonian = build_hamiltonian(positions, dipoles, energies)
    directions = torch.randn(16, 3, generator=torch.Generator().manual_seed(5)).to(device)
    bright = (dipoles @ directions.T).T.contiguous()
    chains = {}

    def step(index):
        orientation = index % bright.shape[0]
        chains[orientation] = recursion_coefficients(hamiltonian, bright[orientation], RECURSION)

    for index in range(WARMUP):
        step(index)
    torch.cuda.synchronize()

    times = []
    index = WARMUP
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(index)
            index += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    grid = np.linspace(-6.0, 6.0, 601)
    absorption = np.zeros_like(grid)
    for diagonal, coupling in chains.values():
        absorption += spectrum(diagonal.cpu().double().numpy(), coupling.cpu().double().numpy(), grid)
    absorption /= len(chains)
    area = float(absorption.sum() * (grid[1] - grid[0]))
    mean_coupling = float(np.mean([c.cpu().numpy()[:10].mean() for _, c in chains.values()]))
    result = [area, float(absorption.max()), mean_coupling]
    print(json.dumps({"program": PROGRAM, "steps": index,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
