"""Masked-patch pretraining of a transformer encoder on 12-lead ECG."""
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 5
LEADS = 12
PATCH = 16
SEQ = 1024
BATCH = 16
DIM = 2048
HEADS = 16
DEPTH = 4
MASK_RATE = 0.4
POOL = 6
WARMUP = 6
BLOCKS = 8
BLOCK_STEPS = 4


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, d // self.heads).unbind(2)
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.proj(out.transpose(1, 2).reshape(b, s, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class EcgEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(LEADS * PATCH, DIM, bias=False)
        self.position = nn.Parameter(torch.randn(SEQ, DIM) * 0.02)
        self.mask_token = nn.Parameter(torch.zeros(DIM))
        self.blocks = nn.ModuleList(Block(DIM, HEADS) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, LEADS * PATCH, bias=False)
        for block in self.blocks:
            for layer in (block.attn.proj, block.down):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * DEPTH))

    def forward(self, patches, mask):
        x = torch.where(mask, self.mask_token, self.embed(patches)) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def synthetic_ecg(device):
    """A pool of quasi-periodic records, one (BATCH, SEQ, LEADS * PATCH) each."""
    t = torch.arange(SEQ * PATCH, device=device) / 500.0
    rate = 0.9 + 0.6 * torch.rand(POOL, BATCH, 1, 1, device=device)
    phase = torch.rand(POOL, BATCH, LEADS, 1, device=device) * 0.1
    beat = (t * rate + phase) % 1.0
    wave = 1.2 * torch.exp(-((beat - 0.4) / 0.015) ** 2) + 0.25 * torch.exp(-((beat - 0.65) / 0.05) ** 2)
    wave = wave + 0.03 * torch.randn_like(wave)
    wave = wave.view(POOL, BATCH, LEADS, SEQ, PATCH).permute(0, 1, 3, 2, 4)
    return wave.reshape(POOL, BATCH, SEQ, LEADS * PATCH).to(torch.bfloat16)


def train_step(model, opt, patches):
    mask = torch.rand(BATCH, SEQ, 1, device=patches.device) < MASK_RATE
    pred = model(patches, mask)
    error = (pred - patches).float().square().mean(-1, keepdim=True)
    loss = (error * mask).sum() / mask.sum()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()


def main():
    torch.manual_seed(SEED)
    device = torch.device("cuda")
    with device:
        model = EcgEncoder()
    # Weights live in bf16 for this probe run; the learning rate is large
    # enough that updates do not vanish.
    model = model.to(torch.bfloat16).train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    pool = synthetic_ecg(device)
    total = torch.zeros((), device=device)
    step = 0

    def run(count):
        nonlocal step
        for _ in range(count):
            total.add_(train_step(model, opt, pool[step % POOL]))
            step += 1

    run(WARMUP)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(BLOCK_STEPS)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)

    print(json.dumps({
        "program": "torch_ecg_masked",
        "steps": step,
        "us": statistics.median(times),
        "result": [total.item() / step],
    }))


if __name__ == "__main__":
    main()
