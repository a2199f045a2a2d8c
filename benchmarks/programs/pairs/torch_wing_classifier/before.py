"""Classify insect wings with a wide vision transformer; pictures come from a DataLoader."""

import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda"
PICTURES, STORED, CROP, PATCH = 1024, 128, 112, 8
DIM, HEADS, LAYERS, CLASSES = 2048, 16, 4, 64
BATCH = 128
WORKERS = 8
WARMUP, STEPS = 8, 40


class Wings(Dataset):
    def __init__(self):
        rng = np.random.default_rng(21)
        self.pictures = rng.integers(0, 256, (PICTURES, 3, STORED, STORED), dtype=np.uint8)

    def __len__(self):
        return (WARMUP + STEPS) * BATCH

    def __getitem__(self, i):
        top, left = (5 * i) % (STORED - CROP), (11 * i) % (STORED - CROP)
        picture = self.pictures[i % PICTURES, :, top : top + CROP, left : left + CROP]
        if i % 2:
            picture = picture[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(picture)), i % CLASSES


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class WingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(3 * PATCH * PATCH, DIM)
        self.place = nn.Parameter(0.02 * torch.randn((CROP // PATCH) ** 2, DIM))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, pictures):
        x = pictures.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)
        x = x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        return self.head(self.blocks(self.patch(x) + self.place).mean(1))


def main():
    torch.manual_seed(21)
    net = WingNet().to(DEVICE, torch.bfloat16)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    loader = DataLoader(Wings(), BATCH, num_workers=WORKERS, pin_memory=True, prefetch_factor=4)
    losses, start = [], 0.0
    for step, (pictures, labels) in enumerate(loader):
        if step == WARMUP:
            torch.cuda.synchronize()
            start = time.perf_counter()
        pictures = pictures.to(DEVICE, non_blocking=True)
        labels = labels.to(DEVICE, non_blocking=True)
        loss = F.cross_entropy(net(pictures.to(torch.bfloat16) / 255 - 0.5).float(), labels)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    us = (time.perf_counter() - start) / STEPS * 1e6
    result = [losses[0].item(), losses[1].item()]
    print(f"{BATCH / us * 1e6:.0f} pictures/s, loss {losses[-1].item():.4f}")
    out = {"program": "torch_wing_classifier", "steps": len(losses), "us": us, "result": result}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
