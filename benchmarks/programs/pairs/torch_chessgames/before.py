"""Evaluate whole chess games: a causal transformer gives the win chance after every half-move.

Games are sequences of move tokens (from-square, to-square, promotion packed in
one id). The archive is evaluated in batches of equal length, weights in bfloat16.
"""
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

VOCAB = 4608          # 64 * 64 moves, promotions, and a few special tokens
PLIES = 512
GAMES = 32
DIM = 3072
HEADS = 24
LAYERS = 5


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm_a = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm_b = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.norm_a(x))
        return x + self.down(F.gelu(self.up(self.norm_b(x)), approximate="tanh"))


class GameValue(nn.Module):
    """Win, draw and loss chances after each half-move."""

    def __init__(self):
        super().__init__()
        self.moves = nn.Embedding(VOCAB, DIM)
        self.plies = nn.Embedding(PLIES, DIM)
        self.layers = nn.ModuleList(Layer(DIM, HEADS) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, 3)

    def forward(self, moves):
        x = self.moves(moves) + self.plies.weight[: moves.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build(device):
    torch.manual_seed(2024)
    torch.set_default_dtype(torch.bfloat16)
    with device:
        model = GameValue()
    torch.set_default_dtype(torch.float32)
    nn.init.normal_(model.moves.weight, std=0.5)
    nn.init.normal_(model.plies.weight, std=0.1)
    return model.eval().requires_grad_(False)


def main():
    device = torch.device("cuda")
    model = build(device)
    gen = torch.Generator(device=device).manual_seed(7)
    archive = torch.randint(0, VOCAB, (8, GAMES, PLIES), device=device, generator=gen)

    expected_points = torch.zeros(GAMES, PLIES, device=device)
    points = torch.tensor([1.0, 0.5, 0.0], device=device)
    steps = 0

    @torch.inference_mode()
    def evaluate(n):
        nonlocal steps
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(n):
            chances = model(archive[steps % len(archive)]).float().softmax(dim=-1)
            expected_points.add_(chances @ points)
            steps += 1
        torch.cuda.synchronize()
        return (time.perf_counter() - started) / n

    evaluate(6)
    seconds = [evaluate(5) for _ in range(5)]
    us = statistics.median(seconds) * 1e6

    mean_points = expected_points / steps
    print(f"{GAMES * PLIES / us:.2f} M half-moves/s")
    print(json.dumps({
        "program": "torch_chessgames",
        "steps": steps,
        "us": us,
        "result": [mean_points.mean().item(), mean_points.std().item()],
    }))


if __name__ == "__main__":
    main()
