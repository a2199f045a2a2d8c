"""Trains an emulator of lake temperature profiles: meteorological forcing history to the profile ten days ahead."""
import json
import time

import numpy as np
import torch
from torch import nn

NAME = "torch_lake_turnover"
SEED = 73
DEVICE = torch.device("cuda")

FORCING = 1024        # 16 drivers by 64 lags
DEPTHS = 512
HIDDEN = 8192
LAYERS = 3
BATCH = 16384
N_BATCHES = 6


def simulate_archive():
    """Forcing is smooth noise; profiles follow from a stratification proxy with a few seasonal modes."""
    g = torch.Generator(device=DEVICE).manual_seed(SEED)
    n = BATCH * N_BATCHES
    forcing = torch.randn(n, FORCING, generator=g, device=DEVICE)
    modes = torch.randn(FORCING, 12, generator=g, device=DEVICE) / FORCING ** 0.5
    depth = torch.linspace(0.0, 1.0, DEPTHS, device=DEVICE)
    shapes = torch.stack([torch.cos(torch.pi * k * depth) / (1 + k) for k in range(12)])
    profiles = torch.tanh(forcing @ modes) @ shapes
    return forcing.to(torch.bfloat16), profiles.to(torch.bfloat16)


class ProfileEmulator(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = [nn.Linear(FORCING, HIDDEN), nn.ReLU(inplace=True)]
        for _ in range(LAYERS):
            blocks += [nn.Linear(HIDDEN, HIDDEN), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(HIDDEN, DEPTHS)

    def forward(self, forcing):
        return self.head(self.body(forcing))


def initialise(model):
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    nn.init.normal_(model.head.weight, std=0.002)


class Trainer:
    """Bfloat16 weights throughout, with one fused update per step."""

    def __init__(self, model, lr=2e-4):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99),
                                           weight_decay=0.01, fused=True)
        self.losses = []

    def step(self, forcing, profiles):
        self.optimizer.zero_grad(set_to_none=True)
        predicted = self.model(forcing)
        loss = nn.functional.mse_loss(predicted, profiles)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())
        return loss


def main():
    torch.manual_seed(SEED)
    forcing, profiles = simulate_archive()
    order = torch.randperm(forcing.shape[0], device=DEVICE)
    forcing, profiles = forcing[order], profiles[order]
    batches = list(zip(forcing.split(BATCH), profiles.split(BATCH)))

    model = ProfileEmulator().to(DEVICE)
    initialise(model)
    model = model.to(torch.bfloat16)
    trainer = Trainer(model)

    for x, y in batches:
        trainer.step(x, y)
    torch.cuda.synchronize()

    times, steps = [], 0
    for _ in range(8):
        start = time.perf_counter()
        for x, y in batches:
            trainer.step(x, y)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / N_BATCHES)
        steps += N_BATCHES

    losses = torch.stack(trainer.losses).float().cpu().numpy()
    result = [float(losses[:N_BATCHES].mean()), float(losses[-N_BATCHES:].mean())]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
