"""Snowpack stability index from layered snow profiles, trained with Lightning.

A profile is a vector of 40 layers with six properties each.  A deep residual
network maps it to four stability indices used by the avalanche bulletin.
"""
import json
import statistics
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")

LAYERS = 40
PROPERTIES = 6
WIDTH = 256
DEPTH = 24
BATCH = 512
BATCHES = 16
WARMUP = 20
BLOCK = 10
BLOCKS = 10


class AdaBelief(torch.optim.Optimizer):
    """AdaBelief with decoupled weight decay (Zhuang et al., 2020)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr, eps, decay = group["lr"], group["eps"], group["weight_decay"]
            group["count"] = group.get("count", 0) + 1
            correction1 = 1.0 - beta1 ** group["count"]
            correction2 = 1.0 - beta2 ** group["count"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                    state["belief"] = torch.zeros_like(p)
                mean, belief = state["mean"], state["belief"]
                p.mul_(1.0 - lr * decay)
                mean.mul_(beta1).add_(p.grad, alpha=1.0 - beta1)
                residual = p.grad - mean
                belief.mul_(beta2).addcmul_(residual, residual, value=1.0 - beta2)
                denominator = belief.div(correction2).sqrt_().add_(eps)
                p.addcdiv_(mean, denominator, value=-lr / correction1)
        return loss


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.reduce = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.reduce(F.gelu(self.expand(self.norm(x))))


class StabilityModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(LAYERS * PROPERTIES, WIDTH)
        self.blocks = nn.Sequential(*[Residual(WIDTH) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x))))

    def training_step(self, batch, batch_idx):
        profile, index = batch
        return F.smooth_l1_loss(self(profile), index)

    def configure_optimizers(self):
        return AdaBelief(self.parameters(), lr=3e-4)


class StepClock(L.Callback):
    """Wall time of a training step over blocks of steps."""

    def __init__(self):
        self.times = []
        self.start = None

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        done = batch_idx + 1 - WARMUP
        if done < 0 or done % BLOCK:
            return
        torch.cuda.synchronize()
        now = time.perf_counter()
        if done > 0:
            self.times.append((now - self.start) / BLOCK * 1e6)
        self.start = time.perf_counter()


def make_profiles(device):
    gen = torch.Generator(device=device).manual_seed(31)
    mixing = torch.randn(LAYERS * PROPERTIES, 4, device=device, generator=gen) / 16
    batches = []
    for _ in range(BATCHES):
        steps = torch.randn(BATCH, LAYERS, PROPERTIES, device=device, generator=gen)
        profile = (steps.cumsum(dim=1) / LAYERS ** 0.5).reshape(BATCH, -1)
        index = torch.tanh(profile @ mixing) + 0.05 * torch.randn(BATCH, 4, device=device, generator=gen)
        batches.append((profile, index))
    return batches


def main():
    L.seed_everything(7, verbose=False)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda", 0)
    batches = make_profiles(device)
    steps = WARMUP + BLOCK * BLOCKS
    schedule = [batches[i % BATCHES] for i in range(steps)]
    model = StabilityModel()
    clock = StepClock()
    trainer = L.Trainer(
        accelerator="gpu", devices=1, max_epochs=1, logger=False, callbacks=[clock],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(model, train_dataloaders=DataLoader(schedule, batch_size=None))

    model = model.to(device).eval()
    with torch.no_grad():
        final = [F.smooth_l1_loss(model(x), y).item() for x, y in batches[:4]]
        weights = sum(p.double().pow(2).sum().item() for p in model.parameters()) ** 0.5
    print(json.dumps({
        "program": "lightning_snowpack", "steps": steps,
        "us": statistics.median(clock.times),
        "result": [sum(final) / len(final), weights],
    }))


if __name__ == "__main__":
    main()
