"""Surrogate of the pressure distribution on a wing section, trained on solver snapshots held on the device.

Inputs: 96 shape modes and flow conditions. Output: pressure coefficient at 512 stations.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_airfoil_loads"
INPUTS, STATIONS = 128, 512
WIDTH, HIDDEN = 6144, 5
BATCH = 16384
POOL = 8
WARMUP, BLOCKS, PER_BLOCK = 8, 5, 8


def snapshots(device, seed=31):
    """Smooth random responses of the section to its modes, made where they are used."""
    gen = torch.Generator(device=device).manual_seed(seed)
    modes = torch.randn(POOL, BATCH, INPUTS, generator=gen, device=device)
    mix_a = torch.randn(INPUTS, 64, generator=gen, device=device) / INPUTS ** 0.5
    mix_b = torch.randn(64, STATIONS, generator=gen, device=device) / 8.0
    cp = torch.tanh(modes @ mix_a) @ mix_b
    return modes.bfloat16(), cp.bfloat16()


class SectionNet(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [INPUTS] + [WIDTH] * (HIDDEN + 1)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.head = nn.Linear(WIDTH, STATIONS)
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x), inplace=True)
        return self.head(x)


class Trainer:
    """Mixed precision: float32 weights in the optimizer, bfloat16 products."""

    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=1e-3, fused=True)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / 20))

    def step(self, modes, cp):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.mse_loss(self.model(modes), cp)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.sched.step()
        return loss.detach()


def main():
    torch.manual_seed(7)
    device = torch.device("cuda")
    modes, cp = snapshots(device)
    with device:
        model = SectionNet()
    trainer = Trainer(model)

    done = 0
    for _ in range(WARMUP):
        trainer.step(modes[done % POOL], cp[done % POOL])
        done += 1
    torch.cuda.synchronize()

    spans, losses = [], []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            losses.append(trainer.step(modes[done % POOL], cp[done % POOL]))
            done += 1
        torch.cuda.synchronize()
        spans.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    losses = torch.stack(losses).float()
    print(json.dumps({"program": NAME, "steps": done, "us": statistics.median(spans),
                      "result": [losses[:POOL].mean().item(), losses[-POOL:].mean().item()]}))


if __name__ == "__main__":
    main()
