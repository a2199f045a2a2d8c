"""Trains a Chebyshev graph network that forecasts the occupancy of bike docks from the last hours of all docks."""
import json
import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "lightning_bike_docks"
SEED = 616
DOCKS = 6144
HISTORY = 12
BATCH = 20
BATCHES = 30
HIDDEN = 64
ORDER = 5
WARMUP = 20
BLOCKS = 10
BLOCK_STEPS = 12
DEVICE = torch.device("cuda")


def scaled_laplacian(places, reach=0.08):
    """Laplacian of the distance kernel between docks, scaled to eigenvalues in [-1, 1]."""
    distance = torch.cdist(places, places)
    weight = torch.exp(-0.5 * (distance / reach) ** 2)
    weight.fill_diagonal_(0.0)
    degree = weight.sum(dim=1)
    normal = weight / torch.sqrt(degree[:, None] * degree[None, :])
    return -normal


def chebyshev(laplacian, order):
    """Polynomials T_1 ... T_(order-1) of the Laplacian by their recurrence."""
    before, current = torch.eye(laplacian.shape[0], device=laplacian.device), laplacian
    polynomials = [current]
    for _ in range(order - 2):
        before, current = current, torch.addmm(before, laplacian, current, beta=-1.0, alpha=2.0)
        polynomials.append(current)
    return polynomials


class OccupancyWindows:
    """Batches of (history, next hour) for all docks, cut from one long record on the device."""

    def __init__(self, places):
        g = torch.Generator().manual_seed(SEED + 1)
        hours = torch.arange(BATCH * BATCHES + HISTORY + 1, device=DEVICE).float()
        phase = torch.sin(7.0 * places[:, :1]) + torch.cos(5.0 * places[:, 1:])
        daily = torch.sin(2 * np.pi * hours / 24 + 2 * phase)
        weekly = 0.5 * torch.sin(2 * np.pi * hours / 168 + phase)
        noise = 0.1 * torch.randn(DOCKS, hours.numel(), generator=g).to(DEVICE)
        record = daily + weekly + noise
        starts = torch.randperm(BATCH * BATCHES, generator=g).view(BATCHES, BATCH)
        self.items = []
        for batch in starts.to(DEVICE):
            index = batch[:, None] + torch.arange(HISTORY, device=DEVICE)
            self.items.append((record[:, index].contiguous(), record[:, batch + HISTORY].contiguous()))

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)


class ChebConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(torch.randn(ORDER, inputs, outputs) / (inputs * ORDER) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, polynomials):
        docks, batch, _ = x.shape
        total = (x @ self.weight[0]).view(docks, -1)
        for k, polynomial in enumerate(polynomials, start=1):
            total = torch.addmm(total, polynomial, (x @ self.weight[k]).view(docks, -1))
        return total.view(docks, batch, self.outputs) + self.bias


class DockForecaster(L.LightningModule):
    def __init__(self, laplacian):
        super().__init__()
        self.register_buffer("polynomials", torch.stack(chebyshev(laplacian, ORDER)))
        self.conv1 = ChebConv(HISTORY, HIDDEN)
        self.conv2 = ChebConv(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, 1)
        self.last_loss = None

    def forward(self, history):
        h = F.relu(self.conv1(history, self.polynomials))
        h = F.relu(self.conv2(h, self.polynomials))
        return self.head(h).squeeze(-1) + history[..., -1]

    def training_step(self, batch, batch_idx):
        history, target = batch
        loss = F.mse_loss(self(history), target)
        self.last_loss = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-2, fused=True)


class BlockClock(L.Callback):
    """Wall time per step over blocks of steps, and the losses of the timed part."""

    def __init__(self):
        self.times, self.losses = [], []
        self.done = 0
        self.start = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.done += 1
        if self.done > WARMUP:
            self.losses.append(module.last_loss)
        if self.done >= WARMUP and (self.done - WARMUP) % BLOCK_STEPS == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            if self.start is not None:
                self.times.append((now - self.start) / BLOCK_STEPS)
            self.start = now


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(SEED)
    places = torch.rand(DOCKS, 2, generator=torch.Generator().manual_seed(SEED)).to(DEVICE)
    windows = OccupancyWindows(places)
    model = DockForecaster(scaled_laplacian(places))
    clock = BlockClock()
    trainer = L.Trainer(
        accelerator="auto",
        devices=1,
        max_steps=WARMUP + BLOCKS * BLOCK_STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[clock],
    )
    trainer.fit(model, train_dataloaders=windows)

    losses = torch.stack(clock.losses)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    result = [float(losses.mean()), float(losses[-BATCHES:].mean()), float(weights.norm())]
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS, "us": float(np.median(clock.times)) * 1e6,
                      "result": result}))


if __name__ == "__main__":
    main()
