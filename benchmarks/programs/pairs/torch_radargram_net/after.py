"""Segment reflectors in ground-penetrating radar profiles with a small U-Net."""

import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda"
TRACES, SAMPLES = 128, 256
PROFILES = 64
BATCH = 32
WARMUP, STEPS = 16, 96
WINDOW = 31


class GainAndBackground:
    """Take the running mean off each trace and divide by its running level."""

    def __init__(self, window):
        self.window = window

    def __call__(self, profile):
        half = self.window // 2
        padded = np.pad(profile, ((0, 0), (half + 1, half)), mode="edge")
        padded[:, 0] = 0
        total = np.cumsum(padded, axis=1, dtype=np.float64)
        square = np.cumsum(np.square(padded), axis=1, dtype=np.float64)
        mean = ((total[:, self.window :] - total[:, : -self.window]) / self.window).astype(
            np.float32
        )
        power = ((square[:, self.window :] - square[:, : -self.window]) / self.window).astype(
            np.float32
        )
        std = np.sqrt(np.maximum(power - mean * mean, 0))
        return (profile - mean) / (std + np.float32(0.1))


class Profiles(Dataset):
    def __init__(self, length, transform):
        rng = np.random.default_rng(17)
        self.profiles = rng.standard_normal((PROFILES, TRACES, SAMPLES), dtype=np.float32)
        depth = np.linspace(0, 6, SAMPLES, dtype=np.float32)
        self.profiles *= np.exp(-0.3 * depth)
        self.length = length
        self.transform = transform

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        profile = self.transform(self.profiles[i % PROFILES])
        return torch.from_numpy(profile)[None], torch.from_numpy(profile > 1.0).float()[None]


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.down1, self.down2 = double_conv(1, width), double_conv(width, 2 * width)
        self.middle = double_conv(2 * width, 4 * width)
        self.up2, self.up1 = double_conv(6 * width, 2 * width), double_conv(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        return self.head(self.up1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))


def main():
    torch.manual_seed(17)
    data = Profiles((WARMUP + STEPS) * BATCH, GainAndBackground(WINDOW))
    loader = DataLoader(data, batch_size=BATCH, num_workers=8, pin_memory=True)
    net = UNet().to(DEVICE, memory_format=torch.channels_last)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    losses, start = [], None
    for step, (x, y) in enumerate(loader):
        if step == WARMUP:
            torch.cuda.synchronize()
            start = time.perf_counter()
        x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
        x = x.to(memory_format=torch.channels_last)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.binary_cross_entropy_with_logits(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    torch.cuda.synchronize()
    mean = (time.perf_counter() - start) / STEPS
    values = torch.stack(losses).tolist()
    print(f"loss {values[0]:.4f} -> {values[-1]:.4f}, {mean * 1e3:.1f} ms a step")
    result = [values[0], values[2], values[9]]
    line = {"program": "torch_radargram_net", "steps": len(values), "us": mean * 1e6}
    print(json.dumps(line | {"result": result}))


if __name__ == "__main__":
    main()
