"""Train the output head of a language model with label smoothing and a z-loss."""

import json
import statistics
import time

import torch
import torch.nn as nn

DEVICE = "cuda"
VOCAB = 32000
DIM = 512
TOKENS = 4096
SMOOTH = 0.1
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 8


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.norm = RMSNorm(DIM)
        self.mix = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        self.out = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.mix(self.norm(x))
        return self.out(x)


def smooth_loss(logits, target):
    """Cross entropy against smoothed one-hot targets."""
    logits = logits - logits.max(dim=-1, keepdim=True).values
    exp = torch.exp(logits)
    probs = exp / exp.sum(dim=-1, keepdim=True)
    logp = torch.log(probs + 1e-12)
    onehot = torch.zeros_like(logits).scatter_(1, target[:, None], 1.0)
    soft = onehot * (1 - SMOOTH) + SMOOTH / VOCAB
    return -(soft * logp).sum(dim=-1).mean()


def main():
    torch.manual_seed(12)
    torch.set_float32_matmul_precision("high")
    model = Head().to(DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = torch.randint(0, VOCAB, (8, TOKENS + 1)).to(DEVICE)
    count = 0

    def train_step():
        nonlocal count
        batch = data[count % 8]
        count += 1
        logits = model(batch[:-1])
        loss = smooth_loss(logits, batch[1:])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss

    first = [train_step().item() for _ in range(4)]
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
        print(f"block {block}: loss {loss.item():.4f}")
    out = {
        "program": "torch_lm_head_loss",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [first[0], first[3]],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
