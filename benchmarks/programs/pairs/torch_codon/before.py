"""Masked language model over codon sequences: two wide encoder layers, bf16 autocast."""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY = 128          # 64 codons, specials, padded to a round number
MASK_TOKEN = 65
LENGTH = 1024
GENES = 16
WIDTH = 3072
HEADS = 24
LAYERS = 2
WARMUP = 6
BLOCK = 4
BLOCKS = 8


class Norm(nn.LayerNorm):
    """LayerNorm that stays in the dtype of its input (statistics are in fp32 inside of the kernel)."""

    def forward(self, x):
        with torch.autocast("cuda", enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype),
                                self.bias.to(x.dtype), self.eps)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).unbind(2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_attention = Norm(width)
        self.attention = Attention(width, heads)
        self.norm_mlp = Norm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm_attention(x))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class CodonEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.codon = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(WIDTH, HEADS) for _ in range(LAYERS))
        self.norm = Norm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        # the residual stream is kept in bf16, parameters stay in fp32
        x = (self.codon(tokens) + self.position).to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def synthetic_genes(count, generator):
    """Codon usage follows a skewed distribution with a short-range repeat."""
    usage = torch.rand(64, device="cuda", generator=generator).square() + 0.02
    genes = torch.multinomial(usage, count * LENGTH, replacement=True, generator=generator)
    genes = genes.view(count, LENGTH)
    genes[:, 3::4] = genes[:, 2::4]
    hidden = torch.rand(count, LENGTH, device="cuda", generator=generator) < 0.15
    return torch.where(hidden, MASK_TOKEN, genes), torch.where(hidden, genes, -100)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = CodonEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    generator = torch.Generator(device="cuda").manual_seed(2)
    shards = [synthetic_genes(GENES, generator) for _ in range(4)]
    losses = []

    def train_step(index):
        tokens, target = shards[index % len(shards)]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens)
        loss = F.cross_entropy(logits.float().view(-1, VOCABULARY), target.view(-1), ignore_index=-100)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())

    step = 0
    for _ in range(WARMUP):
        train_step(step)
        step += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            train_step(step)
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK)

    mean_loss = torch.stack(losses).mean().item()
    print(json.dumps({"program": "torch_codon", "steps": step,
                      "us": statistics.median(times) * 1e6, "result": [mean_loss]}))


if __name__ == "__main__":
    main()
