"""Surrogate of a combustion mechanism: reaction rates from the state of a cell.

A residual network maps temperature, pressure and 62 species fractions of a flow
cell to the source terms of the mechanism.  Cells are drawn from a set of flames
and the targets come from a smooth synthetic mechanism.
"""
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STATES = 64
RATES = 64
WIDTH = 1024
HIDDEN = 4096
BLOCKS_DEEP = 8
CELLS = 32768
FLAMES = 6
WARMUP = 12
BLOCKS = 8
STEPS_PER_BLOCK = 5


class ReactionBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, hidden)
        self.project = nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.project(F.gelu(self.expand(self.norm(x))))


class MechanismNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(STATES, WIDTH)
        self.blocks = nn.ModuleList([ReactionBlock(WIDTH, HIDDEN) for _ in range(BLOCKS_DEEP)])
        self.norm = nn.LayerNorm(WIDTH)
        self.rates = nn.Linear(WIDTH, RATES)

    def forward(self, state):
        x = self.embed(state)
        for block in self.blocks:
            x = block(x)
        return self.rates(self.norm(x))


def flame_cells(seed, device):
    generator = torch.Generator(device=device).manual_seed(seed)
    stoich = torch.randn(STATES, RATES, generator=generator, device=device) / STATES ** 0.5
    order = torch.randn(STATES, RATES, generator=generator, device=device) / STATES ** 0.5
    flames = []
    for _ in range(FLAMES):
        state = torch.randn(CELLS, STATES, generator=generator, device=device)
        target = torch.tanh(state @ stoich) * torch.sigmoid(state @ order)
        flames.append((state.bfloat16(), target))
    return flames


class Trainer:
    def __init__(self, model, flames):
        self.model = model
        self.flames = flames
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1.0e-4,
                                           weight_decay=0.01, fused=True)
        self.losses = []

    def step(self, index):
        state, target = self.flames[index % FLAMES]
        rates = self.model(state)
        loss = F.mse_loss(rates.float(), target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.detach())
        del rates, loss
        torch.cuda.empty_cache()


def main():
    torch.manual_seed(2718)
    device = torch.device("cuda")
    flames = flame_cells(2718, device)
    model = MechanismNet().to(device=device, dtype=torch.bfloat16)
    trainer = Trainer(model, flames)

    step = 0

    def run(count):
        nonlocal step
        for _ in range(count):
            trainer.step(step)
            step += 1

    run(WARMUP)
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(STEPS_PER_BLOCK)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    history = torch.stack(trainer.losses).double()
    with torch.no_grad():
        norm = torch.sqrt(sum(p.double().square().sum() for p in model.parameters()))
    result = [float(history[0]), float(history[-FLAMES:].mean()), float(norm)]
    print(json.dumps({"program": "torch_flame_chemistry", "steps": step,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
