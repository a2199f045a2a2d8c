"""Kalman filters for many tracks: predict, update, one matrix after another."""

import json
import statistics
import time

import torch

DEVICE = "cuda"
TRACKS = 48
STATE = 12
OBSERVED = 6
MEASUREMENTS = 40
WARMUP = 4
BLOCKS = 6


def make_problem():
    g = torch.Generator().manual_seed(13)
    f = torch.eye(STATE) + torch.diag(torch.full((STATE - 3,), 0.1), 3)
    f = f.repeat(TRACKS, 1, 1) + 0.001 * torch.randn(TRACKS, STATE, STATE, generator=g)
    h = torch.randn(TRACKS, OBSERVED, STATE, generator=g) * 0.3
    z = torch.randn(MEASUREMENTS, TRACKS, OBSERVED, generator=g)
    return f.to(DEVICE), h.to(DEVICE), z.to(DEVICE)


def main():
    f, h, z = make_problem()
    q = 0.01 * torch.eye(STATE, device=DEVICE)
    r = 0.5 * torch.eye(OBSERVED, device=DEVICE)
    one = torch.eye(STATE, device=DEVICE)
    x = torch.zeros(TRACKS, STATE, device=DEVICE)
    p = torch.eye(STATE, device=DEVICE).repeat(TRACKS, 1, 1)
    count = 0

    def update(meas):
        nonlocal count
        count += 1
        for i in range(TRACKS):
            xi = f[i] @ x[i]
            pi = f[i] @ p[i] @ f[i].T + q
            s = h[i] @ pi @ h[i].T + r
            gain = torch.linalg.solve_ex(s, h[i] @ pi).result.T
            x[i] = xi + gain @ (meas[i] - h[i] @ xi)
            p[i] = (one - gain @ h[i]) @ pi

    for k in range(WARMUP):
        update(z[k])
    early = [x.norm().item(), p.diagonal(dim1=1, dim2=2).sum().item()]
    torch.cuda.synchronize()
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for k in range(WARMUP, WARMUP + 6):
            update(z[k + 6 * block])
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 6)
        print(f"after {count} measurements: |x| = {x.norm().item():.4f}")
    out = {
        "program": "torch_kalman_tracks",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [*early, x.norm().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
