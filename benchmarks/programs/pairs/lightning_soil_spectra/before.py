"""Organic carbon and clay from near-infrared soil spectra, trained with Lightning.

A spectrum of 2048 wavelengths is cut to 64 patches; an encoder reads them and predicts 6 soil properties.
"""
import json
import logging
import statistics
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NAME = "lightning_soil_spectra"
WAVELENGTHS, PATCH = 2048, 32
PATCHES = WAVELENGTHS // PATCH
PROPERTIES = 6
DIM, HEADS, LAYERS = 768, 12, 4
BATCH = 192
WARMUP, BLOCKS, PER_BLOCK = 8, 5, 6
STEPS = WARMUP + BLOCKS * PER_BLOCK

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class SpectraBatches(Dataset):
    """Whole batches of reflectance curves: absorption bands whose depth follows the soil properties."""

    def __init__(self, n_batches, seed=61):
        gen = torch.Generator().manual_seed(seed)
        axis = torch.linspace(0, 1, WAVELENGTHS)
        centres = torch.rand(PROPERTIES, 1, generator=gen)
        bands = torch.exp(-((axis - centres) / 0.04) ** 2)
        self.y = torch.rand(8, BATCH, PROPERTIES, generator=gen)
        noise = 0.02 * torch.randn(8, BATCH, WAVELENGTHS, generator=gen)
        self.x = 0.6 - 0.3 * (self.y @ bands) + 0.1 * axis + noise
        self.n_batches = n_batches

    def __len__(self):
        return self.n_batches

    def __getitem__(self, i):
        return self.x[i % 8], self.y[i % 8]


class SoilEncoder(L.LightningModule):
    def __init__(self, lr=1e-4):
        super().__init__()
        self.lr = lr
        self.patch = nn.Linear(PATCH, DIM)
        self.position = nn.Parameter(0.02 * torch.randn(PATCHES, DIM))
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, PROPERTIES)

    def forward(self, spectra):
        tokens = self.patch(spectra.unflatten(-1, (PATCHES, PATCH))) + self.position
        return self.head(self.norm(self.encoder(tokens).mean(1)))

    def training_step(self, batch, batch_idx):
        spectra, properties = batch
        return F.mse_loss(self(spectra).float(), properties)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.01, fused=True)


class BlockClock(L.Callback):
    """Host time of blocks of steps, after the warm-up."""

    def __init__(self):
        self.spans, self.losses, self.start = [], [], None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].detach())
        done = batch_idx + 1 - WARMUP
        if done >= 0 and done % PER_BLOCK == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            if self.start is not None:
                self.spans.append((now - self.start) / PER_BLOCK * 1e6)
            self.start = now


def main():
    L.seed_everything(9, verbose=False)
    loader = DataLoader(SpectraBatches(STEPS), batch_size=None, shuffle=False, pin_memory=True)
    clock = BlockClock()
    trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=1, precision="32-true",
                        logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, gradient_clip_val=None, callbacks=[clock])
    trainer.fit(SoilEncoder(), loader)

    losses = torch.stack(clock.losses).float()
    print(json.dumps({"program": NAME, "steps": len(losses), "us": statistics.median(clock.spans),
                      "result": [losses[:8].mean().item(), losses[8:].mean().item()]}))


if __name__ == "__main__":
    main()
