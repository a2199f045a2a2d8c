"""A small GPT as people first write it: FP32, unfused attention and GELU, single-tensor AdamW.
About 820 launches per step. A second argument "nvtx" marks each step."""

import math
import sys

import steps
import torch

LAYERS, WIDTH, HEADS, LENGTH, BATCH, WORDS = 3, 768, 12, 512, 8, 8192


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)).bool())

    def attention(self, x):
        q, k, v = (
            each.view(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
            for each in self.qkv(x).split(WIDTH, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(~self.mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))

    def gelu(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(self.gelu(self.up(self.second(x))))


torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Embedding(WORDS, WIDTH),
    *(Block() for _ in range(LAYERS)),
    torch.nn.Linear(WIDTH, WORDS),
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False, fused=False)
words = torch.randint(WORDS, (BATCH, LENGTH + 1), device="cuda")


losses = []


def step(_: int) -> None:
    logits = model(words[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, WORDS), words[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())


mark = torch.cuda.nvtx.range if "nvtx" in sys.argv else None
steps.run(step, torch.cuda.synchronize, mark=mark, result=lambda: losses[-1])
