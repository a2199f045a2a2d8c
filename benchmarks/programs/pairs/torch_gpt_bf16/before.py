"""Train a GPT in bfloat16, with the usual settings for speed."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
VOCAB = 8192
DIM = 2048
HEADS = 16
LAYERS = 4
CONTEXT = 1024
BATCH = 4
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(DIM, bias=False)
        self.ln2 = nn.LayerNorm(DIM, bias=False)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)
        self.up = nn.Linear(DIM, 4 * DIM, bias=False)
        self.down = nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(DIM, bias=False)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, x, y):
        h = self.tok(x) + self.pos.weight[: x.size(1)]
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.ln(h)).flatten(0, 1), y.flatten())


def main():
    torch.manual_seed(15)
    torch.set_float32_matmul_precision("high")
    model = GPT().to(DEVICE).to(torch.bfloat16)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    data = torch.randint(0, VOCAB, (8, BATCH, CONTEXT + 1)).to(DEVICE)
    count = 0

    def train_step():
        nonlocal count
        batch = data[count % 8]
        count += 1
        torch.cuda.nvtx.range_push(f"step {count}")
        loss = model(batch[:, :-1], batch[:, 1:])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
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
        print(f"block {block}: loss {loss.item():.4f}, {times[-1] * 1e3:.2f} ms")
    out = {
        "program": "torch_gpt_bf16",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [first],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
