"""Radial-basis surrogate that maps sensor-array readings to gas concentrations."""
import json
import math
import time

import numpy as np
import torch
from torch import nn

SEED = 731
DEVICE = torch.device("cuda")
READINGS = 4 * 32768
BATCH = 32768
CHANNELS = 64
CENTRES = 256
GASES = 6
WARMUP = 200
BLOCKS = 10
PER_BLOCK = 10


def make_campaign():
    """Exposure campaign: gas mixtures and the response of the sensor array."""
    rng = np.random.default_rng(SEED)
    mixture = rng.gamma(2.0, 0.5, size=(READINGS, GASES)).astype(np.float32)
    affinity = rng.normal(0.0, 0.8, size=(GASES, CHANNELS)).astype(np.float32)
    response = np.log1p(mixture) @ affinity
    response = np.tanh(0.6 * response)
    response += rng.normal(0.0, 0.03, size=response.shape).astype(np.float32)
    readings = torch.from_numpy(response.astype(np.float32))
    target = torch.from_numpy(np.log1p(mixture).astype(np.float32))
    return readings.to(DEVICE), target.to(DEVICE)


class RadialBasis(nn.Module):
    """Gaussian activations around learned centres in reading space."""

    def __init__(self, channels, centres, initial):
        super().__init__()
        self.centres = nn.Parameter(initial.clone())
        self.log_width = nn.Parameter(torch.full((centres,), math.log(math.sqrt(channels) * 0.5)))

    def distances(self, x):
        offset = x.unsqueeze(1) - self.centres.unsqueeze(0)
        return offset.pow(2).sum(dim=-1).sqrt()

    def forward(self, x):
        scaled = self.distances(x) / self.log_width.exp()
        return torch.exp(-0.5 * scaled * scaled)


class GasSurrogate(nn.Module):
    def __init__(self, initial):
        super().__init__()
        self.basis = RadialBasis(CHANNELS, CENTRES, initial)
        self.norm = nn.LayerNorm(CENTRES)
        self.head = nn.Linear(CENTRES, GASES)

    def forward(self, x):
        return self.head(self.norm(self.basis(x)))


class Calibration:
    def __init__(self, readings, target):
        self.readings = readings.split(BATCH)
        self.target = target.split(BATCH)
        torch.manual_seed(SEED)
        initial = readings[torch.arange(CENTRES, device=DEVICE) * 17]
        initial = initial + 0.2 * torch.randn(CENTRES, CHANNELS).to(DEVICE)
        self.model = GasSurrogate(initial).to(DEVICE)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.steps = 0
        self.loss = None

    def step(self):
        index = self.steps % len(self.readings)
        prediction = self.model(self.readings[index])
        loss = nn.functional.mse_loss(prediction, self.target[index])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()
        self.steps += 1


def main():
    readings, target = make_campaign()
    calibration = Calibration(readings, target)

    for _ in range(WARMUP):
        calibration.step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            calibration.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    with torch.no_grad():
        width = calibration.model.basis.log_width.exp().mean().item()
        spread = calibration.model.basis.centres.norm().item()
    print(json.dumps({
        "program": "torch_calibration_rbf",
        "steps": calibration.steps,
        "us": float(np.median(times)),
        "result": [calibration.loss.item(), width, spread],
    }))


if __name__ == "__main__":
    main()
