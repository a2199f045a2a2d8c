"""Predicts remaining battery capacity from impedance features: residual MLP, Lion, weight average."""
import json
import statistics
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

FEATURES = 64
WIDTH = 256
DEPTH = 48
BATCH = 2048
WARMUP = 6
BLOCK = 5
BLOCKS = 7
STEPS = WARMUP + BLOCK * BLOCKS


class Lion(torch.optim.Optimizer):
    """Sign of an interpolated momentum, with decoupled weight decay."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                momentum = state["momentum"]
                update = momentum.mul(beta1).add_(p.grad, alpha=1.0 - beta1).sign_()
                p.mul_(1.0 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])
                momentum.mul_(beta2).add_(p.grad, alpha=1.0 - beta2)
        return loss


class ResidualUnit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.enter = nn.Linear(width, width)
        self.leave = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        return torch.addcmul(x, self.scale, self.leave(F.silu(self.enter(self.norm(x)))))


class CapacityModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(FEATURES, WIDTH)
        self.units = nn.Sequential(*(ResidualUnit(WIDTH) for _ in range(DEPTH)))
        self.head = nn.Linear(WIDTH, 1)
        self.losses = []
        self.average = None

    def forward(self, x):
        return self.head(self.units(self.stem(x))).squeeze(-1)

    def training_step(self, batch, batch_idx):
        impedance, capacity = batch
        loss = F.smooth_l1_loss(self(impedance), capacity)
        self.losses.append(loss.detach())
        return loss

    def on_train_start(self):
        self.average = [p.detach().clone() for p in self.parameters()]

    @torch.no_grad()
    def on_train_batch_end(self, outputs, batch, batch_idx):
        for kept, p in zip(self.average, self.parameters()):
            kept.lerp_(p, 0.02)

    def configure_optimizers(self):
        return Lion(self.parameters(), lr=3e-5)


class CellStream(IterableDataset):
    """Whole batches of cells, already resident on the GPU."""

    def __init__(self, count):
        generator = torch.Generator(device="cuda").manual_seed(6)
        mixing = torch.randn(FEATURES, device="cuda", generator=generator) / FEATURES ** 0.5
        self.batches = []
        for _ in range(count):
            x = torch.randn(BATCH, FEATURES, device="cuda", generator=generator)
            self.batches.append((x, torch.tanh(x @ mixing) + 0.5 * x[:, 0] * x[:, 1]))

    def __iter__(self):
        for step in range(STEPS):
            yield self.batches[step % len(self.batches)]


class StepClock(L.Callback):
    def __init__(self):
        self.times = []
        self.mark = None

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx >= WARMUP and (batch_idx - WARMUP) % BLOCK == 0:
            self.lap()

    def on_train_end(self, trainer, module):
        self.lap()

    def lap(self):
        torch.cuda.synchronize()
        now = time.perf_counter()
        if self.mark is not None:
            self.times.append((now - self.mark) / BLOCK)
        self.mark = now


def main():
    warnings.filterwarnings("ignore")
    L.seed_everything(0, verbose=False)
    torch.set_float32_matmul_precision("high")
    model, clock = CapacityModel(), StepClock()
    trainer = L.Trainer(max_steps=STEPS, max_epochs=1, accelerator="gpu", devices=1, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, callbacks=[clock])
    trainer.fit(model, DataLoader(CellStream(8), batch_size=None))
    spread = torch.stack([kept.double().square().sum() for kept in model.average]).sum().sqrt().item()
    print(json.dumps({"program": "lightning_battery", "steps": STEPS,
                      "us": statistics.median(clock.times) * 1e6,
                      "result": [torch.stack(model.losses).mean().item(), spread]}))


if __name__ == "__main__":
    main()
