"""Water line segmentation of tidal flats from four-band scenes, trained with a distance-weighted boundary term."""
import json
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")

NAME = "lightning_tidal_flats"
BATCH = 48
SIZE = 128
BANDS = 4
STORED = 8
WARMUP = 8
BLOCK = 5
BLOCKS = 8


def truth_distance(water):
    planes = water[:, 0, ::2, ::2].cpu().numpy() > 0.5
    field = np.zeros(planes.shape, np.float32)
    for k, plane in enumerate(planes):
        if plane.any():
            field[k] = ndimage.distance_transform_edt(~plane)
    return torch.from_numpy(field)[:, None].cuda()


class TidalScenes(Dataset):
    def __init__(self, length):
        generator = torch.Generator(device="cuda").manual_seed(31)
        self.length = length
        self.batches = []
        for _ in range(STORED):
            relief = torch.randn(BATCH, 1, 8, 8, generator=generator, device="cuda")
            relief = F.interpolate(relief, size=(SIZE, SIZE), mode="bicubic", align_corners=False)
            water = (relief > 0.1).float()
            tint = torch.tensor([0.2, 0.35, -0.3, -0.8], device="cuda").view(1, BANDS, 1, 1)
            noise = torch.randn(BATCH, BANDS, SIZE, SIZE, generator=generator, device="cuda")
            scenes = (water * tint + 0.15 * relief + 0.5 * noise).contiguous(memory_format=torch.channels_last)
            self.batches.append((scenes, water, truth_distance(water)))

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.batches[index % STORED]


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class FlatsUNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.down0 = double_conv(BANDS, width)
        self.down1 = double_conv(width, 2 * width)
        self.down2 = double_conv(2 * width, 4 * width)
        self.up1 = double_conv(6 * width, 2 * width)
        self.up0 = double_conv(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        fine = self.down0(x)
        middle = self.down1(self.pool(fine))
        coarse = self.down2(self.pool(middle))
        x = F.interpolate(coarse, scale_factor=2, mode="nearest")
        x = self.up1(torch.cat((x, middle), dim=1))
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.up0(torch.cat((x, fine), dim=1))
        return self.head(x)


def distance_to_water(mask):
    planes = mask[:, 0].cpu().numpy()
    field = np.zeros(planes.shape, np.float32)
    for k, plane in enumerate(planes):
        if plane.any():
            field[k] = ndimage.distance_transform_edt(~plane)
    return torch.from_numpy(field).to(mask.device)[:, None]


class WaterLine(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = FlatsUNet().to(memory_format=torch.channels_last)
        self.losses = []

    def training_step(self, batch, batch_idx):
        scenes, water, shore = batch
        logits = self.net(scenes).float()
        overlap = F.binary_cross_entropy_with_logits(logits, water)
        coarse = F.avg_pool2d(logits, 2)
        reach = distance_to_water(coarse.detach() > 0)
        error = (coarse.sigmoid() - F.avg_pool2d(water, 2)).square()
        boundary = (error * (reach.square() + shore.square())).mean() / 256.0
        loss = overlap + boundary
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-4, weight_decay=0.01, fused=True)


class BlockClock(L.Callback):
    def __init__(self):
        self.times = []
        self.started = 0.0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        done = batch_idx + 1 - WARMUP
        if done < 0 or done % BLOCK:
            return
        torch.cuda.synchronize()
        if done > 0:
            self.times.append((time.perf_counter() - self.started) / BLOCK * 1e6)
        self.started = time.perf_counter()


def main():
    L.seed_everything(7)
    torch.set_float32_matmul_precision("high")
    steps = WARMUP + BLOCK * BLOCKS
    loader = DataLoader(TidalScenes(steps), batch_size=None, shuffle=False, num_workers=0)
    model = WaterLine()
    clock = BlockClock()
    trainer = L.Trainer(
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        benchmark=True,
        callbacks=[clock],
    )
    trainer.fit(model, loader)
    losses = torch.stack(model.losses).double()
    result = [round(losses[:8].mean().item(), 6), round(losses[-16:].mean().item(), 6)]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(clock.times)), "result": result}))


if __name__ == "__main__":
    main()
