"""Vibrations of a model glass under shear.

The dynamical matrix of a random spring network is followed through a series
of small shear strains.  At each strain a Lanczos sweep from a random start
vector gives the recursion coefficients of the vibrational density of states,
from which the upper band edge and its moments are taken.
"""
import json
import statistics
import time

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal

ATOMS = 1360
CUTOFF = 1.6
SWEEP = 48
STRAIN_STEP = 2.0e-4
WARMUP = 20
BLOCK = 10
BLOCKS = 10


def spring_network(device):
    """Periodic random packing: bond directions and spring constants."""
    gen = torch.Generator(device=device).manual_seed(1360)
    box = ATOMS ** (1.0 / 3.0)
    position = box * torch.rand((ATOMS, 3), device=device, generator=gen)
    separation = position[:, None, :] - position[None, :, :]
    separation = separation - box * torch.round(separation / box)
    distance = separation.norm(dim=-1)
    direction = separation / distance.clamp_min(1e-6)[..., None]
    spring = torch.where(distance < CUTOFF, (1.0 - distance / CUTOFF) ** 2, torch.zeros_like(distance))
    spring.fill_diagonal_(0.0)
    return direction, spring


def assemble(direction, spring):
    """Matrix of the harmonic energy of the bonds, 3 N x 3 N."""
    block = spring[..., None, None] * direction[..., :, None] * direction[..., None, :]
    onsite = block.sum(dim=1)
    matrix = -block
    index = torch.arange(ATOMS, device=spring.device)
    matrix[index, index] = onsite
    return matrix.permute(0, 2, 1, 3).reshape(3 * ATOMS, 3 * ATOMS).contiguous()


class ShearedGlass:
    """Dynamical matrix as a function of the shear strain, to first order."""

    def __init__(self, device):
        direction, spring = spring_network(device)
        self.rest = assemble(direction, spring)
        self.slope = assemble(direction, spring * direction[..., 0] * direction[..., 1])
        self.matrix = torch.empty_like(self.rest)

    def at(self, strain):
        return torch.add(self.rest, self.slope, alpha=strain, out=self.matrix)


def start_vectors(count, size, device):
    gen = torch.Generator(device=device).manual_seed(77)
    vectors = torch.randn((count, size), device=device, generator=gen)
    return vectors / vectors.norm(dim=1, keepdim=True)


def lanczos(matrix, start):
    """Recursion coefficients of one sweep."""
    alphas, betas = [], []
    vector = start
    previous = torch.zeros_like(start)
    beta = 0.0
    for _ in range(SWEEP):
        residual = torch.mv(matrix, vector)
        residual.sub_(previous * beta)
        alpha = torch.dot(residual, vector).item()
        residual.sub_(vector * alpha)
        beta = torch.linalg.vector_norm(residual).item()
        previous, vector = vector, residual / beta
        alphas.append(alpha)
        betas.append(beta)
    return alphas, betas


def band_summary(sweeps):
    """Upper edge, mean and width of the band, averaged over the strains."""
    edges, means, widths = [], [], []
    for alphas, betas in sweeps:
        diagonal = np.asarray(alphas, dtype=np.float64)
        offdiagonal = np.asarray(betas, dtype=np.float64)
        ritz = eigh_tridiagonal(diagonal, offdiagonal[:-1], eigvals_only=True)
        edges.append(np.sqrt(ritz[-1]))
        means.append(diagonal[0])
        widths.append(offdiagonal[0])
    return [float(np.mean(edges)), float(np.mean(means)), float(np.mean(widths))]


def main():
    device = torch.device("cuda", 0)
    glass = ShearedGlass(device)
    steps = WARMUP + BLOCK * BLOCKS
    starts = start_vectors(steps, 3 * ATOMS, device)
    sweeps = []

    def strain_step(number):
        matrix = glass.at(STRAIN_STEP * number)
        sweeps.append(lanczos(matrix, starts[number]))

    with torch.inference_mode():
        for number in range(WARMUP):
            strain_step(number)
        torch.cuda.synchronize()

        times = []
        number = WARMUP
        for _ in range(BLOCKS):
            start = time.perf_counter()
            for _ in range(BLOCK):
                strain_step(number)
                number += 1
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / BLOCK * 1e6)

        sweeps = [(torch.as_tensor(a).tolist(), torch.as_tensor(b).tolist()) for a, b in sweeps]
    print(json.dumps({
        "program": "torch_glass_phonons", "steps": steps,
        "us": statistics.median(times), "result": band_summary(sweeps),
    }))


if __name__ == "__main__":
    main()
