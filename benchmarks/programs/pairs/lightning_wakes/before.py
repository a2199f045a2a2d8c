"""Surrogate of wind-turbine wakes: inflow + layout features -> deficit at probe points.

Trained with Lightning on synthetic Jensen/Gaussian wakes.
"""
import json
import logging
import statistics
import time
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import lightning as L

warnings.filterwarnings("ignore", ".*does not have many workers.*")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

TURBINES = 24
FEATURES = 2 * TURBINES + 4      # positions, wind speed, direction (sin, cos), turbulence
PROBES = 128
BATCH = 8192
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 4
TOTAL = WARMUP + BLOCKS * PER_BLOCK


class WakeFarm(Dataset):
    """Each item is one whole batch of farm layouts with the deficits at the probes."""

    def __init__(self, n_batches, seed):
        g = torch.Generator().manual_seed(seed)
        probes = torch.rand(PROBES, 2, generator=g)
        self.batches = []
        for _ in range(2):
            xy = torch.rand(BATCH, TURBINES, 2, generator=g)
            speed = 6 + 8 * torch.rand(BATCH, 1, generator=g)
            theta = 6.2832 * torch.rand(BATCH, 1, generator=g)
            ti = 0.05 + 0.1 * torch.rand(BATCH, 1, generator=g)
            wind = torch.cat([theta.cos(), theta.sin()], dim=1)
            # a few turbines dominate: keep the generator cheap
            deficit = torch.zeros(BATCH, PROBES)
            for k in range(3):
                rel = probes[None] - xy[:, k, None]
                along = (rel * wind[:, None]).sum(-1)
                across = rel[..., 0] * wind[:, None, 1] - rel[..., 1] * wind[:, None, 0]
                sigma = 0.03 + ti * along.clamp(min=0)
                deficit += (along > 0) * torch.exp(-0.5 * (across / sigma) ** 2) * 0.05 / sigma
            x = torch.cat([xy.flatten(1), speed / 10, wind, ti * 10], dim=1)
            self.batches.append((x, deficit))
        self.n = n_batches

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.batches[i % len(self.batches)]


class WakeNet(L.LightningModule):
    def __init__(self, width=3072, depth=4, lr=1e-4):
        super().__init__()
        layers = [nn.Linear(FEATURES, width), nn.GELU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.GELU()]
        layers.append(nn.Linear(width, PROBES))
        self.net = nn.Sequential(*layers)
        self.lr = lr
        self.register_buffer("loss_sum", torch.zeros(()), persistent=False)

    def training_step(self, batch, batch_idx):
        x, deficit = batch
        loss = nn.functional.smooth_l1_loss(self.net(x), deficit, beta=0.1)
        self.loss_sum += loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)


class LapTimer(L.Callback):
    def __init__(self):
        self.laps = []
        self.started = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        done = batch_idx + 1
        if done < WARMUP or (done - WARMUP) % PER_BLOCK:
            return
        torch.cuda.synchronize()
        now = time.perf_counter()
        if self.started is not None:
            self.laps.append((now - self.started) / PER_BLOCK)
        self.started = now


def main():
    L.seed_everything(1891, verbose=False)
    loader = DataLoader(WakeFarm(TOTAL, seed=3), batch_size=None, shuffle=False, pin_memory=True)
    with torch.device("cuda"):
        model = WakeNet()
    timer = LapTimer()
    trainer = L.Trainer(
        accelerator="gpu", devices=1, max_epochs=1, callbacks=[timer],
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    mean_loss = (model.loss_sum / trainer.global_step).item()
    print(json.dumps({"program": "lightning_wakes", "steps": trainer.global_step,
                      "us": statistics.median(timer.laps) * 1e6, "result": [mean_loss]}))


if __name__ == "__main__":
    main()
