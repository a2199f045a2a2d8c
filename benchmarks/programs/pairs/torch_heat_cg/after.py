"""Implicit heat conduction in a plate of varying conductivity.

Backward Euler in time, finite volumes in space; every time step solves
(I + dt K) u_new = u_old + dt q with conjugate gradients.
"""

import json
import statistics
import time

import numpy as np
import torch

GRID = 1024
CG_ITERS = 60
DT = 8.0
BLOCKS = 10
STEPS_PER_BLOCK = 20


def conductivity(n, rng):
    """Smooth random conductivity between 0.2 and 2."""
    y, x = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n), indexing="ij")
    field = np.zeros((n, n))
    for _ in range(12):
        kx, ky = rng.integers(1, 9, 2)
        phase = rng.uniform(0, 2 * np.pi)
        field += np.cos(2 * np.pi * (kx * x + ky * y) + phase)
    field = (field - field.min()) / (field.max() - field.min())
    return 0.2 + 1.8 * field


def assemble(k, dt):
    """CSR matrix I + dt K with insulated sides, harmonic face averages."""
    n = k.shape[0]
    ids = np.arange(n * n).reshape(n, n)
    rows, cols, vals = [], [], []
    diag = np.ones((n, n))
    for axis in (0, 1):
        lo = [slice(None), slice(None)]
        hi = [slice(None), slice(None)]
        lo[axis], hi[axis] = slice(0, -1), slice(1, None)
        lo, hi = tuple(lo), tuple(hi)
        face = dt * 2 * k[lo] * k[hi] / (k[lo] + k[hi])
        for a, b in ((lo, hi), (hi, lo)):
            rows.append(ids[a].ravel())
            cols.append(ids[b].ravel())
            vals.append(-face.ravel())
            diag[a] += face
    rows.append(ids.ravel())
    cols.append(ids.ravel())
    vals.append(diag.ravel())
    rows, cols, vals = map(np.concatenate, (rows, cols, vals))
    order = np.lexsort((cols, rows))
    counts = np.bincount(rows, minlength=n * n)
    indptr = np.concatenate(([0], np.cumsum(counts)))
    return torch.sparse_csr_tensor(
        torch.from_numpy(indptr.astype(np.int32)),
        torch.from_numpy(cols[order].astype(np.int32)),
        torch.from_numpy(vals[order].astype(np.float32)),
        size=(n * n, n * n),
    )


def conjugate_gradient(A, b, x0, iters):
    x = x0.clone()
    r = b - torch.mv(A, x)
    p = r.clone()
    rs_old = torch.dot(r, r)
    for _ in range(iters):
        Ap = torch.mv(A, p)
        alpha = rs_old / torch.dot(p, Ap)
        x.addcmul_(p, alpha)
        r.addcmul_(Ap, alpha, value=-1)
        rs_new = torch.dot(r, r)
        p.mul_(rs_new / rs_old).add_(r)
        rs_old = rs_new
    return x, rs_old


class Plate:
    def __init__(self, device):
        rng = np.random.default_rng(7)
        k = conductivity(GRID, rng)
        self.A = assemble(k, DT).to(device)
        y, x = np.meshgrid(np.linspace(0, 1, GRID), np.linspace(0, 1, GRID), indexing="ij")
        heater = np.exp(-((x - 0.3) ** 2 + (y - 0.6) ** 2) / 0.005)
        cooler = np.exp(-((x - 0.7) ** 2 + (y - 0.2) ** 2) / 0.02)
        q = (heater - 0.2 * cooler).astype(np.float32).ravel()
        self.q = torch.from_numpy(q).to(device)
        self.u = torch.full((GRID * GRID,), 20.0, device=device)
        self.count = 0
        self.residuals = []

    def step(self):
        power = 1.0 if self.count % 4 < 3 else 0.0
        b = self.u + (DT * power) * self.q
        self.u, rs = conjugate_gradient(self.A, b, self.u, CG_ITERS)
        self.residuals.append(rs)
        self.count += 1


def main():
    torch.manual_seed(0)
    plate = Plate("cuda")
    for _ in range(5):
        plate.step()
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            plate.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    worst = torch.stack(plate.residuals).max().item()
    assert worst < 1e6
    checksum = (plate.u.double() - 20.0).square().mean().sqrt().item()
    print(
        json.dumps(
            {
                "program": "torch_heat_cg",
                "steps": plate.count,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
