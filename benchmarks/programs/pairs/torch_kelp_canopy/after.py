"""Kelp canopy cover from drone mosaics: a residual network that regresses the cover of each pixel."""
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_kelp_canopy"
BATCH = 16
SIZE = 192
BANDS = 5
WIDTH = 128
BLOCKS_DEEP = 8
STORED = 6
WARMUP = 8
BLOCK = 5
BLOCKS = 9


class CanopyBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)

    def forward(self, x):
        h = F.relu(self.first_norm(self.first(x)), inplace=True)
        h = self.second_norm(self.second(h))
        return F.relu(h + x, inplace=True)


class CanopyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(BANDS, WIDTH, 5, padding=2)
        self.blocks = nn.ModuleList([CanopyBlock(WIDTH) for _ in range(BLOCKS_DEEP)])
        self.cover = nn.Conv2d(WIDTH, 1, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.cover(x)


def mosaics(device):
    generator = torch.Generator(device=device).manual_seed(12)
    pieces = []
    for _ in range(STORED):
        coarse = torch.randn(BATCH, 1, 12, 12, generator=generator, device=device)
        patch = F.interpolate(coarse, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
        cover = torch.sigmoid(3.0 * patch)
        tint = torch.tensor([0.1, 0.3, -0.2, 0.8, 0.5], device=device).view(1, BANDS, 1, 1)
        glint = torch.rand(BATCH, BANDS, SIZE, SIZE, generator=generator, device=device)
        image = (cover * tint + 0.4 * glint).contiguous(memory_format=torch.channels_last)
        pieces.append((image, cover))
    return pieces


class CanopyTrainer:
    def __init__(self, device):
        torch.manual_seed(4)
        self.net = CanopyNet().to(device).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-4, fused=True)
        self.pieces = mosaics(device)
        self.losses = []

    def step(self, number):
        image, cover = self.pieces[number % STORED]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            estimate = self.net(image)
        loss = F.smooth_l1_loss(estimate.float().sigmoid(), cover, beta=0.1)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())
        del estimate, loss


def main():
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    trainer = CanopyTrainer(torch.device("cuda"))
    number = 0
    for _ in range(WARMUP):
        trainer.step(number)
        number += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            trainer.step(number)
            number += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)
    losses = torch.stack(trainer.losses).double()
    result = [losses[:6].mean().item(), losses[-12:].mean().item()]
    print(json.dumps({"program": NAME, "steps": number, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
