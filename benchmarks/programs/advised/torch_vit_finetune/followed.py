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

    def forward(self, images, labels):
        x = self.patch(images).flatten(2).transpose(1, 2) + self.pos
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x).mean(1)), labels)


def main():
    torch.manual_seed(3)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = ViT().to(DEVICE)
    opt = torch.optim.AdamW(
        model.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, fused=True
    )
    # Forward with the loss, and its backward, each replayed as one CUDA graph.
    loss_of = torch.compile(model, mode="reduce-overhead", dynamic=False)
    images = torch.randn(4, BATCH, 3, IMAGE, IMAGE).to(DEVICE)
    labels = torch.randint(0, CLASSES, (4, BATCH)).to(DEVICE)
    count = 0

    def train_step():
        nonlocal count
        i = count % 4
        count += 1
        opt.zero_grad(set_to_none=True)
        loss = loss_of(images[i], labels[i])
        loss.backward()
        opt.step()
        # The graph's output is overwritten by the next replay.
        return loss.detach().clone()

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
