"""Masked-token pretraining of a small encoder in bfloat16, synthetic tokens."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
VOCAB = 4096
DIM = 512
HEADS = 8
LAYERS = 4
SEQ = 1024
BATCH = 8
MASK_EVERY = 7
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 6


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(x).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        context = F.scaled_dot_product_attention(q, k, v)
        return self.out(context.transpose(1, 2).reshape(b, t, DIM))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.norm1 = nn.LayerNorm(DIM)
        self.norm2 = nn.LayerNorm(DIM)
        self.ff = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.ff(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(SEQ, DIM) * 0.02)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, tokens, targets, masked):
        x = self.layers(self.embed(tokens) + self.pos)
        return F.cross_entropy(self.head(x[:, masked]).flatten(0, 1), targets.flatten())


def main():
    torch.manual_seed(2)
    model = Encoder().to(DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    masked = torch.arange(0, SEQ, MASK_EVERY, device=DEVICE)
    batches = torch.randint(1, VOCAB, (16, BATCH, SEQ), device="cpu").to(DEVICE)
    count = 0

    def train_step():
        nonlocal count
        tokens = batches[count % len(batches)]
        count += 1
        torch.cuda.nvtx.range_push("train step")
        inputs = tokens.clone()
        inputs[:, masked] = 0
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(inputs, tokens[:, masked], masked)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        torch.cuda.nvtx.range_pop()
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
        print(f"[{block}] loss {loss.item():.4f}  {BATCH * SEQ / times[-1]:.0f} tokens/s")
    out = {
        "program": "torch_bert_pretrain",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [first, loss.item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
