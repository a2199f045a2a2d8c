"""Train a small network that assigns photographs of pottery sherds to wares."""
import io
import json
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset

PROGRAM = "torch_pottery_sherds"
WARES = 12
PHOTOS, SIDE, CROP = 240, 192, 128
BATCH = 48
WARMUP, BLOCKS, BLOCK = 6, 6, 4
SEED = 7311


def photograph(rng, ware):
    """A synthetic sherd: ware-coloured clay, wheel marks and temper grains."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / SIDE
    marks = np.sin(2 * np.pi * (5 + ware) * (y + 0.2 * x) + rng.uniform(0, 6))
    clay = np.array([150 + 6 * ware, 95 + 3 * ware, 60 + 9 * (ware % 4)], np.float32)
    photo = clay + 18 * marks[..., None] + rng.normal(0, 9, (SIDE, SIDE, 3))
    out = io.BytesIO()
    Image.fromarray(photo.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


class SherdPhotos(Dataset):
    """Compressed photographs kept in memory; a key is (epoch, photo)."""

    def __init__(self):
        rng = np.random.default_rng(SEED)
        self.wares = rng.integers(0, WARES, PHOTOS)
        self.files = [photograph(rng, int(w)) for w in self.wares]

    def __len__(self):
        return PHOTOS

    def __getitem__(self, key):
        epoch, index = key
        rng = np.random.default_rng((SEED, epoch, index))
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        image = image.rotate(rng.uniform(-40, 40), Image.Resampling.BICUBIC)
        size = int(rng.integers(CROP - 16, CROP + 32))
        left, top = (int(v) for v in rng.integers(0, SIDE - size, 2))
        image = image.resize((CROP, CROP), Image.Resampling.BILINEAR,
                             (left, top, left + size, top + size))
        image = ImageEnhance.Brightness(image).enhance(rng.uniform(0.8, 1.2))
        image = ImageEnhance.Contrast(image).enhance(rng.uniform(0.8, 1.2))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        return pixels, int(self.wares[index])


def schedule(steps):
    """Batches of keys for the whole run, shuffled anew in each epoch."""
    rng = np.random.default_rng(SEED + 1)
    batches, epoch = [], 0
    while len(batches) < steps:
        order = rng.permutation(PHOTOS)
        for i in range(0, PHOTOS - BATCH + 1, BATCH):
            batches.append([(epoch, int(k)) for k in order[i:i + BATCH]])
        epoch += 1
    return batches[:steps]


def block(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, stride=2, padding=1, bias=False),
                         nn.BatchNorm2d(c_out), nn.ReLU(inplace=True),
                         nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
                         nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class WareNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(block(3, 48), block(48, 96), block(96, 192), block(192, 256))
        self.head = nn.Linear(256, WARES)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def main():
    torch.manual_seed(SEED)
    steps = WARMUP + BLOCKS * BLOCK
    loader = DataLoader(SherdPhotos(), batch_sampler=schedule(steps), pin_memory=True)
    model = WareNet().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    losses = torch.zeros(steps, device="cuda")
    batches = iter(loader)

    def step(k):
        pixels, wares = next(batches)
        pixels = pixels.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        wares = wares.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(pixels.float().div_(127.5).sub_(1))
        loss = F.cross_entropy(scores.float(), wares)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses[k] = loss.detach()

    for k in range(WARMUP):
        step(k)
    torch.cuda.synchronize()
    times = []
    for b in range(BLOCKS):
        begin = time.perf_counter()
        for k in range(BLOCK):
            step(WARMUP + b * BLOCK + k)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / BLOCK)

    first, mean = float(losses[0]), float(losses.mean())
    print(f"loss {first:.3f} at first, {float(losses[-1]):.3f} at last")
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": statistics.median(times) * 1e6,
                      "result": [first, mean]}))


if __name__ == "__main__":
    main()
