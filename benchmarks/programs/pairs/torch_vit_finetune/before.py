"""Fine-tune a narrow and deep vision transformer on synthetic images."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
IMAGE = 64
PATCH = 8
DIM = 192
HEADS = 3
DEPTH = 12
CLASSES = 100
BATCH = 64
LR = 1e-4
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 8


class AdamW:
    """AdamW by the paper, one parameter after another."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, decay=0.01):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.decay = lr, betas, eps, decay
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]
        self.t = 0

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p, m, v in zip(self.params, self.m, self.v, strict=True):
            g = p.grad
            p.mul_(1 - self.lr * self.decay)
            m.mul_(b1).add_(g, alpha=1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            m_hat = m / (1 - b1**self.t)
            v_hat = v / (1 - b2**self.t)
            p.sub_(self.lr * m_hat / (v_hat.sqrt() + self.eps))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.o = nn.Linear(DIM, DIM)
        self.fc1, self.fc2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        h = self.n1(x)
        q, k, v = (
            f(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.o(y)
        return x + self.fc2(F.gelu(self.fc1(self.n2(x))))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.pos = nn.Parameter(torch.randn(1, (IMAGE // PATCH) ** 2, DIM) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def main():
    torch.manual_seed(3)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = ViT().to(DEVICE)
    opt = AdamW(model.parameters(), lr=LR)
    images = torch.randn(4, BATCH, 3, IMAGE, IMAGE).to(DEVICE)
    labels = torch.randint(0, CLASSES, (4, BATCH)).to(DEVICE)
    count = 0

    def train_step():
        nonlocal count
        i = count % 4
        count += 1
        loss = F.cross_entropy(model(images[i]), labels[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    losses = [train_step() for _ in range(WARMUP)]
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    losses = [x.item() for x in losses]
    print("first losses:", " ".join(f"{x:.4f}" for x in losses))
    print(f"{BATCH / statistics.median(times):.0f} images/s")
    out = {
        "program": "torch_vit_finetune",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [losses[0], losses[3], losses[7]],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
