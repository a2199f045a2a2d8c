"""Damage of wind-turbine blades from strain and acceleration features:
a wide residual network that predicts remaining life at several stations."""
import json
import logging
import statistics
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

PROGRAM = "lightning_turbine_blades"
FEATURES, STATIONS = 768, 24
WIDTH, DEPTH, BATCH = 2048, 3, 4096
POOL = 6
WARMUP, BLOCKS, BLOCK = 6, 6, 4
STEPS = WARMUP + BLOCKS * BLOCK
SEED = 5

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class BladeRecords(IterableDataset):
    """Ten-minute records that fit on the GPU, handed out batch by batch."""

    def __init__(self, device):
        gen = torch.Generator(device=device).manual_seed(SEED)
        self.features = torch.randn(POOL, BATCH, FEATURES, device=device, generator=gen)
        wear = torch.randn(FEATURES, STATIONS, device=device, generator=gen) / FEATURES ** 0.5
        load = self.features @ wear
        self.life = torch.tanh(load) + 0.3 * load.square()

    def __iter__(self):
        for k in range(STEPS):
            yield self.features[k % POOL], self.life[k % POOL]


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class BladeLife(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.blocks = nn.Sequential(*[Residual(WIDTH) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.stations = nn.Linear(WIDTH, STATIONS)
        self.register_buffer("history", torch.zeros(STEPS), persistent=False)

    def forward(self, features):
        return self.stations(self.norm(self.blocks(self.embed(features))))

    def training_step(self, batch, batch_idx):
        features, life = batch
        loss = F.smooth_l1_loss(self(features).float(), life)
        self.history[batch_idx] = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, weight_decay=1e-3, fused=True)


class StepClock(L.Callback):
    """Wall-clock time of blocks of steps, once the warm-up is over."""

    def __init__(self):
        self.begin = None
        self.times = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        done = batch_idx + 1
        if done < WARMUP or (done - WARMUP) % BLOCK:
            return
        torch.cuda.synchronize()
        now = time.perf_counter()
        if self.begin is not None:
            self.times.append((now - self.begin) / BLOCK)
        self.begin = time.perf_counter()


def main():
    L.seed_everything(SEED, verbose=False)
    loader = DataLoader(BladeRecords("cuda"), batch_size=None)
    clock = StepClock()
    trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=1, max_steps=STEPS,
                        precision="32-true", callbacks=[clock], logger=False,
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    model = BladeLife()
    trainer.fit(model, loader)

    history = model.history.cpu()
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(json.dumps({"program": PROGRAM, "steps": STEPS,
                      "us": statistics.median(clock.times) * 1e6,
                      "result": [float(history[0]), float(history.mean())]}))


if __name__ == "__main__":
    main()
