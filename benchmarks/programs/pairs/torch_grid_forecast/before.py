"""Training of a patch transformer for 6-hour weather forecasts on a lat-lon grid.

State: 20 variables on 128 x 256 points, patches of 4 x 8, so 1024 tokens.  The
network predicts the normalised tendency; the loss is weighted by cos(latitude).
"""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VARS, LAT, LON = 20, 128, 256
PH, PW = 4, 8
TOKENS = (LAT // PH) * (LON // PW)
DIM, HEADS, DEPTH = 2048, 16, 4
BATCH = 12
ARCHIVE = 96
WARMUP, TIMED, BLOCK = 6, 30, 5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm = nn.LayerNorm(DIM)
        self.mlp_norm = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)
        self.fc1 = nn.Linear(DIM, 4 * DIM)
        self.fc2 = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, n, _ = x.shape
        qkv = self.qkv(self.attn_norm(x)).view(b, n, 3, HEADS, DIM // HEADS)
        q, k, v = qkv.transpose(1, 3).unbind(2)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, n, DIM))
        return x + self.fc2(F.gelu(self.fc1(self.mlp_norm(x)), approximate="tanh"))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        patch = VARS * PH * PW
        self.embed = nn.Linear(patch, DIM)
        self.position = nn.Parameter(torch.randn(1, TOKENS, DIM) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.decode = nn.Linear(DIM, patch)
        nn.init.normal_(self.decode.weight, std=1e-3)

    def forward(self, patches):
        x = self.embed(patches) + self.position
        for block in self.blocks:
            x = block(x)
        return self.decode(self.norm(x))


def patchify(fields):
    """(N, V, LAT, LON) to (N, TOKENS, V * PH * PW)."""
    n = fields.shape[0]
    x = fields.view(n, VARS, LAT // PH, PH, LON // PW, PW)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(n, TOKENS, VARS * PH * PW).contiguous()


def reanalysis(device):
    """Travelling waves of random phase, already normalised and patched."""
    gen = torch.Generator(device=device).manual_seed(1979)
    lat = torch.linspace(-1.5, 1.5, LAT, device=device)[:, None]
    lon = torch.arange(LON, device=device)[None] * (2 * torch.pi / LON)
    phase = torch.rand(ARCHIVE, VARS, 1, 1, generator=gen, device=device) * 6.28
    wave = torch.randint(1, 7, (ARCHIVE, VARS, 1, 1), generator=gen, device=device)
    now = torch.cos(lat) * torch.sin(wave * lon + phase)
    later = torch.cos(lat) * torch.sin(wave * (lon - 0.06) + phase)
    noise = torch.randn(now.shape, generator=gen, device=device) * 0.05
    x = patchify(now + noise).bfloat16()
    y = patchify((later - now) * 4).bfloat16()
    weight = torch.cos(lat).expand(1, VARS, LAT, LON).contiguous()
    return x, y, patchify(weight / weight.mean()).bfloat16()


def build(device):
    with device:
        model = Forecaster().to(torch.bfloat16)
    decay = [p for p in model.parameters() if p.ndim == 2]
    other = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": other, "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)


def main():
    torch.manual_seed(1979)
    device = torch.device("cuda")
    x, y, weight = reanalysis(device)
    model, optimizer = build(device)
    log = torch.zeros(WARMUP + TIMED, device=device)
    starts = ARCHIVE // BATCH

    def train(step):
        lo = (step % starts) * BATCH
        optimizer.zero_grad(set_to_none=True)
        pred = model(x[lo:lo + BATCH])
        loss = ((pred - y[lo:lo + BATCH]).square() * weight).mean(dtype=torch.float32)
        loss.backward()
        optimizer.step()
        log[step] = loss.detach()

    for step in range(WARMUP):
        train(step)
    torch.cuda.synchronize()
    spans = []
    for first in range(WARMUP, WARMUP + TIMED, BLOCK):
        t = time.perf_counter()
        for step in range(first, first + BLOCK):
            train(step)
        torch.cuda.synchronize()
        spans.append((time.perf_counter() - t) / BLOCK * 1e6)
    spans.sort()
    values = log.cpu()
    print(json.dumps({"program": "torch_grid_forecast", "steps": WARMUP + TIMED,
                      "us": spans[len(spans) // 2],
                      "result": [values[0].item(), values[-8:].mean().item()]}))


if __name__ == "__main__":
    main()
