"""Phenotype embeddings of detected cells in fluorescence micrographs.

A detector has already produced boxes; every cell is cut out, resized to a
common size and embedded by a small convolutional network.
"""

import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FRAMES = 4
FIELDS_OF_VIEW = 8
SIZE = 1024
STAINS = 3
CELLS = 48
CROP = 64
BLOCKS = 10
STEPS_PER_BLOCK = 16
DEVICE = "cuda"


class ResidualBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride=2, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.skip(x), inplace=True)


class CellEncoder(nn.Module):
    def __init__(self, width=64, out=128):
        super().__init__()
        self.stem = nn.Conv2d(STAINS, width, 5, stride=2, padding=2)
        self.body = nn.Sequential(
            ResidualBlock(width, width * 2),
            ResidualBlock(width * 2, width * 4),
            ResidualBlock(width * 4, width * 8),
        )
        self.head = nn.Linear(width * 8, out)

    def forward(self, x):
        x = F.relu(self.stem(x), inplace=True)
        x = self.body(x).mean(dim=(2, 3))
        return F.normalize(self.head(x).float(), dim=1)


def micrographs(generator):
    """Smooth background with bright blobs, per frame (fields, stains, SIZE, SIZE)."""
    frames = []
    for _ in range(FRAMES):
        coarse = torch.rand(FIELDS_OF_VIEW, STAINS, 16, 16, generator=generator)
        fine = torch.rand(FIELDS_OF_VIEW, STAINS, 128, 128, generator=generator).pow(6)
        image = F.interpolate(coarse, size=SIZE, mode="bilinear") * 0.2
        image += F.interpolate(fine, size=SIZE, mode="bilinear")
        frames.append(image.to(DEVICE))
    return frames


def detections(rng):
    """Integer boxes (x0, y0, width, height), per frame and field of view."""
    wh = rng.integers(24, 96, (FRAMES, FIELDS_OF_VIEW, CELLS, 2))
    xy = (rng.random(wh.shape) * (SIZE - wh)).astype(np.int64)
    return np.concatenate([xy, wh], axis=-1)


@torch.compile(fullgraph=True, dynamic=False)
def cut_cells(image, boxes):
    """All cells of a frame, resized: (fields * cells, stains, CROP, CROP), one grid_sample.

    bfloat16 and channels last, as the network reads it.
    """
    x, y, w, h = boxes.float().unbind(-1)  # each (fields, cells)
    t = torch.arange(CROP, device=image.device, dtype=torch.float32) / (CROP - 1)
    gx = (x[..., None] + t * (w[..., None] - 1)) * (2 / (SIZE - 1)) - 1
    gy = (y[..., None] + t * (h[..., None] - 1)) * (2 / (SIZE - 1)) - 1
    shape = (FIELDS_OF_VIEW, CELLS, CROP, CROP)
    grid = torch.stack([gx[:, :, None, :].expand(shape), gy[:, :, :, None].expand(shape)], dim=-1)
    cells = F.grid_sample(
        image,
        grid.view(FIELDS_OF_VIEW, CELLS * CROP, CROP, 2),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )
    cells = cells.reshape(FIELDS_OF_VIEW, STAINS, CELLS, CROP, CROP).permute(0, 2, 3, 4, 1)
    cells = cells.to(torch.bfloat16).contiguous()
    return cells.view(FIELDS_OF_VIEW * CELLS, CROP, CROP, STAINS).permute(0, 3, 1, 2)


@torch.inference_mode()
def main():
    torch.manual_seed(2)
    frames = micrographs(torch.Generator().manual_seed(9))
    boxes = [torch.from_numpy(b).pin_memory() for b in detections(np.random.default_rng(9))]
    model = CellEncoder().to(DEVICE).eval().to(memory_format=torch.channels_last)
    # The casts of autocast, the same in each step.
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.to(torch.bfloat16)
    torch.backends.cudnn.benchmark = True
    profile = torch.zeros(128, device=DEVICE)

    @torch.compile(mode="reduce-overhead", fullgraph=True, dynamic=False)
    def embed(cells):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            embedding = model(cells)
        return embedding.mean(dim=0)

    def step(i):
        image = frames[i % FRAMES]
        cells = cut_cells(image, boxes[i % FRAMES].to(DEVICE, non_blocking=True))
        profile.add_(embed(cells))

    done = 0
    for _ in range(8):
        step(done)
        done += 1
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    checksum = (profile / done).abs().sum().item()
    print(
        json.dumps(
            {
                "program": "torch_cell_crops",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
