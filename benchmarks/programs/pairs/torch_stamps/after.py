"""Catalogue classifier for scanned postage stamps.

Scans live as JPEG bytes in memory (as they come from the archive server); each
is decoded, deskewed, cropped and colour-jittered, then fed to a small ConvNet.
"""
import io
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageFilter
from torch.utils.data import DataLoader, Dataset

SCAN = 224
SIDE = 112
BATCH = 24
N_SERIES = 12
WARMUP = 6
BLOCKS, PER_BLOCK = 8, 3
STEPS = WARMUP + BLOCKS * PER_BLOCK


def print_sheet(n, seed):
    """Draws n fake stamps: a frame, a tint per series and some engraving."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SCAN, 0:SCAN].astype(np.float32) / SCAN
    scans, series = [], []
    for _ in range(n):
        k = int(rng.integers(N_SERIES))
        tint = np.array([0.4 + 0.05 * k, 0.9 - 0.05 * k, 0.3 + 0.04 * ((5 * k) % N_SERIES)], np.float32)
        lines = 0.5 + 0.5 * np.sin(2 * np.pi * (3 + k) * (xx + 0.3 * yy) + rng.uniform(0, 6))
        img = tint[None, None] * lines[..., None] + rng.normal(0, 0.05, (SCAN, SCAN, 1))
        img[:10], img[-10:], img[:, :10], img[:, -10:] = 1, 1, 1, 1
        pil = Image.fromarray((np.clip(img, 0, 1) * 255).astype(np.uint8))
        buf = io.BytesIO()
        pil.save(buf, "JPEG", quality=90)
        scans.append(buf.getvalue())
        series.append(k)
    return scans, series


class StampScans(Dataset):
    def __init__(self, scans, series, length):
        self.scans, self.series, self.length = scans, series, length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        rng = np.random.default_rng(977 + i)
        j = int(rng.integers(len(self.scans)))
        img = Image.open(io.BytesIO(self.scans[j])).convert("RGB")
        img = img.rotate(float(rng.uniform(-8, 8)), resample=Image.BICUBIC, fillcolor=(255, 255, 255))
        size = int(rng.integers(170, SCAN))
        x0, y0 = (int(v) for v in rng.integers(0, SCAN - size + 1, 2))
        img = img.resize((SIDE, SIDE), Image.LANCZOS, box=(x0, y0, x0 + size, y0 + size))
        img = ImageEnhance.Color(img).enhance(float(rng.uniform(0.7, 1.3)))
        img = ImageEnhance.Contrast(img).enhance(float(rng.uniform(0.8, 1.2)))
        if rng.random() < 0.5:
            img = img.filter(ImageFilter.GaussianBlur(0.8))
        x = np.asarray(img, dtype=np.float32) / 127.5 - 1.0
        return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1))), self.series[j]


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False),
                         nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
                         nn.Conv2d(cout, cout, 3, padding=1, bias=False),
                         nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


def build_model():
    return nn.Sequential(conv_block(3, 64), conv_block(64, 128), conv_block(128, 256),
                         conv_block(256, 512), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(512, N_SERIES))


torch.manual_seed(7)
device = torch.device("cuda")
torch.backends.cudnn.allow_tf32 = True

scans, series = print_sheet(96, seed=5)
loader = DataLoader(StampScans(scans, series, STEPS * BATCH), batch_size=BATCH,
                    pin_memory=True, drop_last=True, num_workers=12,
                    prefetch_factor=2, persistent_workers=True)

model = build_model().to(device, memory_format=torch.channels_last)
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, fused=True)

running = torch.zeros((), device=device)
laps = []
t0 = None
for step, (scan, target) in enumerate(loader, start=1):
    scan = scan.to(device, non_blocking=True, memory_format=torch.channels_last)
    target = target.to(device, non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(scan), target)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    running += loss.detach()

    if step >= WARMUP and (step - WARMUP) % PER_BLOCK == 0:
        torch.cuda.synchronize()
        now = time.perf_counter()
        if t0 is not None:
            laps.append((now - t0) / PER_BLOCK)
        t0 = now

print(f"mean loss over {step} steps: {running.item() / step:.4f}")
print(json.dumps({"program": "torch_stamps", "steps": step,
                  "us": statistics.median(laps) * 1e6,
                  "result": [running.item() / step]}))
