"""Train a small character-level language model on synthetic text."""

import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
VOCAB = 96
DIM = 1024
HEADS = 16
LAYERS = 6
CONTEXT = 512
BATCH = 8
LR = 3e-4
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.ln2 = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, 4 * DIM)
        self.down = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).chunk(3, dim=-1)
        q = q.view(b, t, HEADS, -1).transpose(1, 2)
        k = k.view(b, t, HEADS, -1).transpose(1, 2)
        v = v.view(b, t, HEADS, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, idx, target):
        x = self.tok(idx) + self.pos.weight[: idx.size(1)]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.view(-1, VOCAB), target.view(-1))


def make_text(n):
    t = torch.arange(n)
    return ((t * 7 + (t // 13) * 5 + (t % 11) * (t % 5)) % VOCAB).to(DEVICE)


def main():
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    text = make_text(200_000)
    model = CharModel().to(DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    n = sum(p.numel() for p in model.parameters())
    print(f"{n / 1e6:.1f} M parameters, {BATCH * CONTEXT} tokens a step")
    offsets = torch.randint(0, 200_000 - CONTEXT - 1, (256, BATCH, 1)).to(DEVICE)
    span = torch.arange(CONTEXT, device=DEVICE)
    count = 0

    def train_step():
        nonlocal count
        where = offsets[count % 256] + span
        count += 1
        loss = model(text[where], text[where + 1])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss

    first = train_step().item()
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
        print(f"block {block}: loss {loss.item():.4f}, {times[-1] * 1e3:.2f} ms a step")
    print(f"perplexity {math.exp(loss.item()):.2f}")
    out = {
        "program": "torch_charlm_train",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [first],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
