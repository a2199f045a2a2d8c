"""Seismic phase picker trained from sharded waveform files, with Lightning."""

import json
import logging
import tempfile
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

try:
    import lightning as L
except ImportError:
    import pytorch_lightning as L

SHARDS, FILES = 24, 4
ROWS, CHANNELS, SAMPLES = 1024, 3, 4096
BATCH = 128
WARMUP, STEPS = 32, 160
ACCELERATOR = "gpu"


def write_shards(folder):
    rng = np.random.default_rng(29)
    for number in range(FILES):
        small = rng.integers(-40, 40, (ROWS, CHANNELS, SAMPLES), dtype=np.int16)
        (folder / f"waves-{number:03d}.z").write_bytes(zlib.compress(small, 1))
        np.save(folder / f"labels-{number:03d}.npy", rng.integers(0, 3, ROWS))


class WaveShards(IterableDataset):
    """Goes through the shards one by one and yields whole batches."""

    def __init__(self, folder):
        self.folder = folder

    def read(self, shard):
        number = shard % FILES
        raw = zlib.decompress((self.folder / f"waves-{number:03d}.z").read_bytes())
        waves = np.frombuffer(raw, dtype=np.int16).reshape(ROWS, CHANNELS, SAMPLES)
        waves = waves.astype(np.float32)
        waves -= waves.mean(2, keepdims=True)
        waves /= np.abs(waves).max(2, keepdims=True)
        return waves, np.load(self.folder / f"labels-{number:03d}.npy")

    def __iter__(self):
        info = get_worker_info()
        for shard in range(info.id, SHARDS, info.num_workers):
            waves, labels = self.read(shard)
            for at in range(0, ROWS, BATCH):
                rows = slice(at, at + BATCH)
                yield torch.from_numpy(waves[rows]), torch.from_numpy(labels[rows])


class Picker(L.LightningModule):
    def __init__(self):
        super().__init__()
        sizes = [CHANNELS, 64, 128, 256, 256]
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Conv1d(a, b, 7, stride=2, padding=3), nn.BatchNorm1d(b), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(256, 3))
        self.power = []
        self.seen = []

    def training_step(self, batch, batch_idx):
        waves, labels = batch
        self.power.append(waves.square().mean())
        self.seen.append(labels.float().mean())
        return F.cross_entropy(self.net(waves), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class StepClock(L.Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx == WARMUP:
            torch.cuda.synchronize()
            self.began = time.perf_counter()

    def on_train_end(self, trainer, module):
        torch.cuda.synchronize()
        self.mean = (time.perf_counter() - self.began) / STEPS


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_float32_matmul_precision("high")
    L.seed_everything(29)
    with tempfile.TemporaryDirectory() as place:
        write_shards(Path(place))
        loader = DataLoader(
            WaveShards(Path(place)), None, num_workers=8, prefetch_factor=6, pin_memory=True
        )
        clock, model = StepClock(), Picker()
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
        options = dict(accelerator=ACCELERATOR, devices=1, precision="bf16-mixed", max_epochs=1)
        trainer = L.Trainer(max_steps=WARMUP + STEPS, callbacks=[clock], **options, **quiet)
        trainer.fit(model, loader)
    result = [torch.stack(model.power).mean().item(), torch.stack(model.seen).mean().item()]
    out = {"program": "lightning_wave_shards", "steps": trainer.global_step}
    print(json.dumps(out | {"us": clock.mean * 1e6, "result": result}))


if __name__ == "__main__":
    main()
