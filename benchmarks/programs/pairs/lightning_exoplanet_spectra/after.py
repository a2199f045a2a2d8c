"""Retrieve atmosphere parameters from noisy transmission spectra.

The network refines a template match: each observed spectrum is correlated with a
library of forward-model spectra, and the residual to the softmax-weighted template
and the weighted template parameters go into a small regression head.
"""
import json
import logging
import time
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

try:
    import lightning as L
except ImportError:
    import pytorch_lightning as L

warnings.filterwarnings("ignore")
for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
    logging.getLogger(name).setLevel(logging.ERROR)

CHANNELS = 1536
TEMPLATES = 24576
PARAMS = 5                     # temperature, radius, log water, log methane, cloud deck
BATCH = 512
KEPT = 6
WARMUP, BLOCKS, PER_BLOCK = 8, 6, 6
STEPS = WARMUP + BLOCKS * PER_BLOCK


def forward_model(theta, grid):
    """Toy transmission spectra: continuum, four molecular band systems, clouds."""
    temp, radius, water, methane, cloud = (theta[:, i:i + 1] for i in range(PARAMS))
    depth = 0.4 * radius - 0.1 * grid
    for centre, width, w in ((0.2, 0.03, water), (0.45, 0.05, water),
                             (0.6, 0.04, methane), (0.85, 0.06, methane)):
        shape = torch.exp(-0.5 * ((grid - centre) / (width * (1 + 0.2 * temp))) ** 2)
        depth = depth + torch.sigmoid(w) * shape * (1 + 0.3 * torch.cos(180 * grid))
    return torch.maximum(depth, 0.3 * cloud)


class SpectraDataset(Dataset):
    """Ready batches: one item is one batch of spectra with their true parameters."""

    def __init__(self, length, seed=2):
        g = torch.Generator().manual_seed(seed)
        grid = torch.linspace(0, 1, CHANNELS)
        self.length = length
        self.items = []
        for _ in range(KEPT):
            theta = torch.randn(BATCH, PARAMS, generator=g)
            clean = forward_model(theta, grid)
            noisy = clean + 0.05 * torch.randn(BATCH, CHANNELS, generator=g)
            self.items.append((noisy.to(torch.bfloat16), theta))

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.items[i % KEPT]


class Retrieval(L.LightningModule):
    def __init__(self, seed=1):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        theta = torch.randn(TEMPLATES, PARAMS, generator=g)
        templates = forward_model(theta, torch.linspace(0, 1, CHANNELS))
        centred = templates - templates.mean(dim=1, keepdim=True)
        self.register_buffer("theta", theta.to(torch.bfloat16), persistent=False)
        self.register_buffer("templates", centred.to(torch.bfloat16), persistent=False)
        self.sharpness = nn.Parameter(torch.tensor(2.0))
        self.head = nn.Sequential(
            nn.Linear(CHANNELS + PARAMS, 1024), nn.GELU(),
            nn.Linear(1024, 1024), nn.GELU(),
            nn.Linear(1024, PARAMS))
        self.losses = []

    def match(self, spectra):
        library, theta = self.templates, self.theta
        centred = spectra - spectra.mean(dim=1, keepdim=True)
        weight = (self.sharpness.to(spectra.dtype) * (centred @ library.t()) / 16).softmax(dim=1)
        return centred - weight @ library, weight @ theta

    def training_step(self, batch, batch_idx):
        spectra, truth = batch
        residual, guess = self.match(spectra)
        estimate = guess + self.head(torch.cat([residual, guess], dim=1))
        loss = F.huber_loss(estimate.float(), truth)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4, fused=True)


class StepClock(L.Callback):
    """Wall time of blocks of training steps."""

    def __init__(self):
        self.done, self.times, self.t0 = 0, [], 0.0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.done += 1
        past = self.done - WARMUP
        if past < 0 or past % PER_BLOCK:
            return
        torch.cuda.synchronize()
        now = time.perf_counter()
        if past > 0:
            self.times.append((now - self.t0) / PER_BLOCK)
        self.t0 = now


def main():
    L.seed_everything(13, verbose=False)
    torch.set_float32_matmul_precision("high")
    loader = DataLoader(SpectraDataset(STEPS), batch_size=None, shuffle=False, pin_memory=True)
    clock = StepClock()
    trainer = L.Trainer(
        accelerator="gpu", devices=1, precision="bf16-mixed", max_epochs=1, max_steps=STEPS,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[clock])
    model = Retrieval()
    trainer.fit(model, loader)
    losses = torch.stack(model.losses).float()
    us = 1e6 * sorted(clock.times)[len(clock.times) // 2]
    print(json.dumps({"program": "lightning_exoplanet_spectra", "steps": STEPS, "us": round(us, 1),
                      "result": [float(losses.mean()), float(losses[-KEPT:].mean())]}))


if __name__ == "__main__":
    main()
