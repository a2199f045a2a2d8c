"""Gait laboratory: normalise strides to 101 samples and look for odd ones.

Marker and force-plate channels of a long treadmill trial are cut at the heel
strikes. Every stride becomes a 0-100 % curve, which is standardised for each
channel; the principal patterns of the strides are updated by a few subspace
iterations and the residual of every stride is its "oddness".
"""
import json
import statistics
import time

import numpy as np
import torch

CHANNELS = 48
STRIDES = 640
SAMPLES = 101
PATTERNS = 6
TRIALS = 3


def simulate_trial(seed, device):
    """One trial: signals [CHANNELS, T] on the GPU and heel strikes as a list of sample numbers."""
    rng = np.random.default_rng(seed)
    durations = np.clip(rng.normal(220, 14, STRIDES), 170, 280).astype(int)
    strikes = np.concatenate([[0], np.cumsum(durations)])
    total = int(strikes[-1]) + 1

    phase = np.interp(np.arange(total), strikes, np.arange(STRIDES + 1))
    phase = torch.tensor(phase, dtype=torch.float32, device=device)
    g = torch.Generator(device=device).manual_seed(seed)
    amp = torch.rand(CHANNELS, 4, device=device, generator=g) / torch.arange(1, 5, device=device)
    shift = torch.rand(CHANNELS, 4, device=device, generator=g)
    signal = torch.zeros(CHANNELS, total, device=device)
    for k in range(4):
        drift = 1 + 0.15 * torch.sin((0.37 + 0.2 * k) * phase)
        signal += drift * amp[:, k:k + 1] * torch.sin(2 * torch.pi * ((k + 1) * phase + shift[:, k:k + 1]))
    signal += 0.1 * torch.randn(CHANNELS, total, device=device, generator=g)
    return signal, strikes.tolist()


class GaitModel:
    def __init__(self, device):
        self.device = device
        g = torch.Generator(device=device).manual_seed(99)
        start = torch.randn(CHANNELS * SAMPLES, PATTERNS, device=device, generator=g)
        self.basis, _ = torch.linalg.qr(start)
        self.mean = torch.zeros(CHANNELS * SAMPLES, device=device)
        self.fraction = torch.linspace(0, 1, SAMPLES, device=device)

    def normalise(self, signal, strikes):
        """Curves [strides, CHANNELS, SAMPLES], each channel with zero mean and unit deviation."""
        marks = torch.tensor(strikes, device=self.device)
        begin, length = marks[:-1], marks[1:] - marks[:-1]
        at = self.fraction * length[:, None]                     # strides, SAMPLES
        left = torch.minimum(at.long(), length[:, None] - 1)
        weight = at - left
        left = (left + begin[:, None]).flatten()
        low = signal.index_select(1, left)
        high = signal.index_select(1, left + 1)
        curves = torch.lerp(low, high, weight.flatten())
        curves = curves.view(CHANNELS, -1, SAMPLES).transpose(0, 1)
        std, mean = torch.std_mean(curves, dim=2, keepdim=True)
        return (curves - mean) / std

    def update(self, curves):
        """Two subspace iterations on the centred strides."""
        flat = curves.flatten(1)
        self.mean = flat.mean(dim=0)
        centred = flat - self.mean
        for _ in range(2):
            scores = centred @ self.basis
            grown = centred.t() @ scores
            # orthonormalise through the small Gram matrix
            chol = torch.linalg.cholesky_ex(grown.t() @ grown)[0]
            self.basis = torch.linalg.solve_triangular(chol, grown.t(), upper=False).t()
        scores = centred @ self.basis
        residual = centred - scores @ self.basis.t()
        return residual.square().mean(dim=1).sqrt()

    def process(self, trial):
        signal, strikes = trial
        return self.update(self.normalise(signal, strikes))


def main():
    device = torch.device("cuda")
    trials = [simulate_trial(seed, device) for seed in range(TRIALS)]
    model = GaitModel(device)
    oddness = []

    def run(n):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        for _ in range(n):
            oddness.append(model.process(trials[len(oddness) % TRIALS]))
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - t0) / n

    run(5)
    spans = [run(4) for _ in range(5)]

    odd = torch.stack(oddness)
    last = odd[-1]
    print("oddest stride of the last trial:", int(last.argmax()))
    print(json.dumps({
        "program": "torch_gait",
        "steps": len(oddness),
        "us": statistics.median(spans),
        "result": [odd.mean().item(), last.max().item(), model.mean.abs().mean().item()],
    }))


if __name__ == "__main__":
    main()
