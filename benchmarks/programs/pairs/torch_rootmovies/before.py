# Time-lapse of root hairs: clean each chunk of the movie and measure tip fluorescence.
# (Started as a notebook; the cells became functions.)
import json
import time

import numpy as np
import torch
import torch.nn.functional as F

SIDE = 640
FRAMES = 32                # frames in a chunk
CHUNKS = 4
WARMUP, BLOCKS, PER_BLOCK = 5, 6, 4
dev = "cuda"


def record_movie():
    """Fake 12-bit camera: slow gradient, shot noise, and a few hundred bright tips."""
    g = torch.Generator(device=dev).manual_seed(5)
    yy, xx = torch.meshgrid(torch.linspace(0, 1, SIDE, device=dev),
                            torch.linspace(0, 1, SIDE, device=dev), indexing="ij")
    base = 220 + 160 * xx + 90 * yy * yy
    chunks = []
    for _ in range(CHUNKS):
        frames = base.expand(FRAMES, SIDE, SIDE).clone()
        frames += 15 * torch.randn(frames.shape, device=dev, generator=g)
        rows = torch.randint(8, SIDE - 8, (300,), device=dev, generator=g)
        cols = torch.randint(8, SIDE - 8, (300,), device=dev, generator=g)
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                frames[:, rows + dy, cols + dx] += 900.0
        chunks.append(frames.clamp(0, 4095).to(torch.int16).cpu().numpy())
    return chunks


def gaussian_taps(sigma):
    radius = int(3 * sigma + 0.5)
    t = torch.arange(-radius, radius + 1, device=dev, dtype=torch.float32)
    taps = torch.exp(-0.5 * (t / sigma) ** 2)
    return taps / taps.sum()


def separable(stack, taps):
    """stack [N, 1, H, W] filtered by taps along both axes."""
    r = (taps.numel() - 1) // 2
    stack = F.conv2d(stack, taps.view(1, 1, 1, -1), padding=(0, r))
    return F.conv2d(stack, taps.view(1, 1, -1, 1), padding=(r, 0))


narrow = gaussian_taps(0.8)
norm_narrow = separable(torch.ones(1, 1, SIDE, SIDE, device=dev), narrow)


def denoise(frames):
    """Light Gaussian smoothing, normalised at the border."""
    stack = torch.as_tensor(frames, device=dev).float().unsqueeze(1)
    smooth = separable(stack, narrow) / norm_narrow
    return smooth.squeeze(1).cpu().numpy()


def flatten_background(frames):
    """Estimate the slow background on a 16x coarser grid and subtract it."""
    stack = torch.as_tensor(frames, device=dev).unsqueeze(1)
    coarse = F.avg_pool2d(stack, 16)
    coarse = F.avg_pool2d(coarse, 5, stride=1, padding=2, count_include_pad=False)
    background = F.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    return (stack - background).squeeze(1).cpu().numpy()


def bleach_correct(frames):
    """Scale every frame to the chunk's mean absolute signal."""
    stack = torch.as_tensor(frames, device=dev)
    level = stack.abs().mean(dim=(1, 2), keepdim=True)
    return (stack * (level.mean() / level)).cpu().numpy()


def measure_tips(frames, threshold=250.0):
    """Area, mean brightness and peak above the threshold, a row for each frame."""
    stack = torch.as_tensor(frames, device=dev)
    mask = (stack > threshold).float()
    area = mask.sum(dim=(1, 2))
    total = (stack * mask).sum(dim=(1, 2))
    peak = stack.amax(dim=(1, 2))
    return torch.stack([area, total / area.clamp_min(1.0), peak], dim=1)


def process_chunk(frames):
    frames = denoise(frames)
    frames = flatten_background(frames)
    frames = bleach_correct(frames)
    return measure_tips(frames)


movie = record_movie()
step = 0
tables = []


def run(n):
    global step
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(n):
        tables.append(process_chunk(movie[step % CHUNKS]))
        step += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


run(WARMUP)
times = [run(PER_BLOCK) for _ in range(BLOCKS)]

summary = torch.stack(tables).mean(dim=(0, 1)).cpu().numpy()
print("frames measured:", step * FRAMES)
print(json.dumps({"program": "torch_rootmovies", "steps": step,
                  "us": float(np.median(times) * 1e6),
                  "result": [float(v) for v in summary]}))
