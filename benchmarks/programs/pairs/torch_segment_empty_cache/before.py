"""Train a small U-Net for segmentation on synthetic shapes, careful about memory."""

import gc
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
BATCH = 8
SIZE = 256
WIDTH = 32
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 8


def double(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        w = WIDTH
        self.d1, self.d2, self.d3 = double(3, w), double(w, 2 * w), double(2 * w, 4 * w)
        self.mid = double(4 * w, 8 * w)
        self.u3 = nn.ConvTranspose2d(8 * w, 4 * w, 2, 2)
        self.u2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2)
        self.u1 = nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.e3, self.e2, self.e1 = double(8 * w, 4 * w), double(4 * w, 2 * w), double(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        m = self.mid(F.max_pool2d(c, 2))
        x = self.e3(torch.cat([c, self.u3(m)], 1))
        x = self.e2(torch.cat([b, self.u2(x)], 1))
        x = self.e1(torch.cat([a, self.u1(x)], 1))
        return self.out(x)


def make_data():
    g = torch.Generator().manual_seed(14)
    grid = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    centre = torch.rand(4 * BATCH, 2, 1, 1, generator=g) - 0.5
    mask = ((x - centre[:, 0]).square() + (y - centre[:, 1]).square() < 0.1).float()[:, None]
    images = mask + 0.5 * torch.randn(4 * BATCH, 3, SIZE, SIZE, generator=g)
    layout = torch.channels_last
    return images.to(DEVICE).contiguous(memory_format=layout), mask.to(DEVICE)


def main():
    torch.manual_seed(14)
    images, masks = make_data()
    model = UNet().to(DEVICE).to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    count = 0

    def train_step():
        nonlocal count
        part = slice((count % 4) * BATCH, (count % 4 + 1) * BATCH)
        count += 1
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            logits = model(images[part])
            loss = F.binary_cross_entropy_with_logits(logits.float(), masks[part])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        value = loss.detach()
        del logits, loss
        gc.collect()
        torch.cuda.empty_cache()
        return value

    first = [train_step() for _ in range(4)]
    for _ in range(WARMUP):
        train_step()
    torch.cuda.synchronize()
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            loss = train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"block {block}: loss {loss.item():.4f}, {BATCH / times[-1]:.0f} images/s")
    out = {
        "program": "torch_segment_empty_cache",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [x.item() for x in first],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
