"""Surrogate of a reactor burn-up code: a wide residual network maps assembly histories to nuclide inventories."""
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_nuclide_surrogate"
ASSEMBLIES = 16384
HISTORY = 1024
NUCLIDES = 1024
WIDTH = 8192
DEPTH = 3
STORED = 4
WARMUP = 6
BLOCK = 4
BLOCKS = 9


class BurnupLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.linear(x), approximate="tanh")


class InventoryNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.intake = nn.Linear(HISTORY, WIDTH)
        self.layers = nn.ModuleList([BurnupLayer(WIDTH) for _ in range(DEPTH)])
        self.inventory = nn.Linear(WIDTH, NUCLIDES)

    def forward(self, x):
        x = F.gelu(self.intake(x), approximate="tanh")
        for layer in self.layers:
            x = layer(x)
        return self.inventory(x)


def burnup_histories(device):
    """Power histories and the inventories of a chain of saturating decays driven by them."""
    generator = torch.Generator(device=device).manual_seed(40)
    response = torch.randn(HISTORY, NUCLIDES, generator=generator, device=device) / HISTORY**0.5
    stored = []
    for _ in range(STORED):
        history = torch.randn(ASSEMBLIES, HISTORY, generator=generator, device=device)
        inventory = torch.tanh(history @ response) + 0.2 * torch.sin(2.0 * history @ response)
        stored.append((history.bfloat16(), inventory.bfloat16()))
    return stored


class SurrogateTraining:
    def __init__(self, device):
        torch.manual_seed(2)
        self.net = InventoryNet().to(device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
        self.stored = burnup_histories(device)
        self.losses = []

    def step(self, number):
        history, inventory = self.stored[number % STORED]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            estimate = self.net(history)
        loss = F.mse_loss(estimate.float(), inventory.float())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())


def main():
    torch.set_float32_matmul_precision("high")
    training = SurrogateTraining(torch.device("cuda"))
    number = 0
    for _ in range(WARMUP):
        training.step(number)
        number += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            training.step(number)
            number += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)
    losses = torch.stack(training.losses).double()
    weights = sum(parameter.detach().double().square().sum() for parameter in training.net.parameters())
    result = [losses[:4].mean().item(), losses[-8:].mean().item(), weights.sqrt().item()]
    print(json.dumps({"program": NAME, "steps": number, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
