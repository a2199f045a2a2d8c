"""Pre-trains an encoder on long hydrophone spectrograms of sperm whale codas.

A share of the frames is hidden and the encoder predicts their band energies
from the rest of the recording.
"""
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_whale_codas"
BATCH = 8
FRAMES = 2048
BANDS = 64
WIDTH = 512
HEADS = 8
DEPTH = 4
RECORDINGS = 32

WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 5


def make_recordings(device):
    gen = torch.Generator(device=device).manual_seed(1851)
    t = torch.arange(FRAMES, device=device, dtype=torch.float32)
    band = torch.arange(BANDS, device=device, dtype=torch.float32)
    noise = torch.randn(RECORDINGS, FRAMES, BANDS, generator=gen, device=device)
    interval = 40.0 + 60.0 * torch.rand(RECORDINGS, 1, generator=gen, device=device)
    phase = 2.0 * math.pi * torch.rand(RECORDINGS, 1, generator=gen, device=device)
    clicks = torch.exp(8.0 * (torch.cos(2.0 * math.pi * t / interval + phase) - 1.0))
    centre = 10.0 + 44.0 * torch.rand(RECORDINGS, 1, generator=gen, device=device)
    shape = torch.exp(-((band - centre) ** 2) / 50.0)
    return 3.0 * clicks[:, :, None] * shape[:, None, :] + noise


class FrameAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, frames, width = x.shape
        qkv = self.qkv(x).view(batch, frames, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // HEADS)
        weights = scores.softmax(dim=-1)
        mixed = weights @ v
        mixed = mixed.transpose(1, 2).reshape(batch, frames, width)
        return self.proj(mixed)


class EncoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = FrameAttention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CodaEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(BANDS, WIDTH)
        self.hidden = nn.Parameter(torch.zeros(WIDTH))
        self.position = nn.Parameter(0.02 * torch.randn(FRAMES, WIDTH))
        self.blocks = nn.ModuleList([EncoderBlock() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, BANDS)

    def forward(self, frames, hide):
        x = torch.where(hide[..., None], self.hidden, self.embed(frames)) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    device = torch.device("cuda")
    recordings = make_recordings(device)
    torch.manual_seed(12)
    model = CodaEncoder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    gen = torch.Generator(device=device).manual_seed(77)

    total_loss = torch.zeros((), device=device)
    steps_done = 0

    def step():
        nonlocal steps_done
        first = (steps_done * BATCH) % RECORDINGS
        frames = recordings[first:first + BATCH]
        hide = torch.rand(BATCH, FRAMES, generator=gen, device=device) < 0.4
        with torch.autocast("cuda", dtype=torch.bfloat16):
            predicted = model(frames, hide)
        error = F.mse_loss(predicted.float(), frames, reduction="none").mean(dim=-1)
        weight = hide.float()
        loss = (error * weight).sum() / weight.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total_loss.add_(loss.detach())
        steps_done += 1

    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    with torch.no_grad():
        norm = torch.stack([p.double().pow(2).sum() for p in model.parameters()]).sum().sqrt()
    print(json.dumps({
        "program": NAME,
        "steps": steps_done,
        "us": statistics.median(times) * 1e6,
        "result": [total_loss.item() / steps_done, norm.item()],
    }))


if __name__ == "__main__":
    main()
