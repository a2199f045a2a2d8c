"""Embed protein sequences with a wide bf16 encoder and mean-pool the residues."""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_protein_embed"
BATCH, LENGTH, AMINO = 8, 1024, 33
DIM, HEADS, LAYERS = 4096, 32, 4
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 5


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.ffn_norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, 4 * DIM)
        self.down = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.attn_norm(x)).view(b, t, 3, HEADS, d // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x)), approximate="tanh"))


class ProteinEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.residue = nn.Embedding(AMINO, DIM)
        self.position = nn.Embedding(LENGTH, DIM)
        self.layers = nn.ModuleList(EncoderLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.register_buffer("index", torch.arange(LENGTH), persistent=False)

    def forward(self, tokens):
        x = self.residue(tokens) + self.position(self.index)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).mean(dim=1, dtype=torch.float32)


def synthetic_sequences(count):
    """Full windows cut from long chains, so every position is a residue."""
    gen = torch.Generator(device="cuda").manual_seed(77)
    return [
        torch.randint(4, AMINO, (BATCH, LENGTH), generator=gen, device="cuda")
        for _ in range(count)
    ]


@torch.inference_mode()
def embed(model, tokens, out):
    out.copy_(model(tokens))


def main():
    torch.manual_seed(9)
    with torch.device("cuda"):
        model = ProteinEncoder()
    model = model.to(torch.bfloat16).eval()
    windows = synthetic_sequences(6)
    table = torch.empty(len(windows), BATCH, DIM, device="cuda")

    done = 0
    for _ in range(WARMUP):
        embed(model, windows[done % 6], table[done % 6])
        done += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            embed(model, windows[done % 6], table[done % 6])
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)
    times.sort()
    print(json.dumps({
        "program": NAME,
        "steps": done,
        "us": times[len(times) // 2],
        "result": [table.abs().mean().item(), table.std().item()],
    }))


if __name__ == "__main__":
    main()
