"""Matching of sherd outlines to a type catalogue.

A catalogue of complete vessel profiles is described by an encoder trained
earlier on complete pots.  For excavated sherds we train a second, smaller
encoder so that a sherd lands near the profile of its vessel type.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_pottery_match"
DEVICE = "cuda"
TYPES = 512          # vessel types in the catalogue
POINTS = 128         # outline points, two coordinates and two curvatures
FEATURES = 4
BATCH = 256
EMBED = 256
WARMUP = 6
BLOCKS = 8
PER_BLOCK = 4


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, w = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, w // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class OutlineEncoder(nn.Module):
    def __init__(self, width, depth, heads):
        super().__init__()
        self.embed = nn.Linear(FEATURES, width)
        self.place = nn.Parameter(torch.randn(POINTS, width) * 0.02)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, EMBED)

    def forward(self, outline):
        x = self.embed(outline) + self.place
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.project(self.norm(x).mean(dim=1)).float(), dim=-1)


def make_profiles():
    """Smooth random vessel profiles, closed by their rims."""
    generator = torch.Generator(device=DEVICE).manual_seed(300)
    t = torch.linspace(0, 1, POINTS, device=DEVICE)
    waves = torch.stack([torch.sin((k + 1) * 3.14159 * t) for k in range(8)])
    weights = torch.randn(TYPES, FEATURES, 8, generator=generator, device=DEVICE)
    weights /= torch.arange(1, 9, device=DEVICE)
    return torch.einsum("tfk,kp->tpf", weights, waves).contiguous()


def break_sherds(profiles, generator):
    types = torch.randint(0, TYPES, (BATCH,), generator=generator, device=DEVICE)
    noise = torch.randn(BATCH, POINTS, FEATURES, generator=generator, device=DEVICE)
    return profiles[types] + 0.1 * noise, types


def train_step(sherd_net, catalogue_net, optimizer, profiles, sherds, types):
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        catalogue = catalogue_net(profiles.bfloat16())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        query = sherd_net(sherds)
    logits = query @ catalogue.T / 0.07
    loss = F.cross_entropy(logits, types)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    torch.manual_seed(12)
    torch.set_float32_matmul_precision("high")
    profiles = make_profiles()
    catalogue_net = OutlineEncoder(768, 8, 12).to(DEVICE, torch.bfloat16)
    catalogue_net.eval().requires_grad_(False)
    sherd_net = OutlineEncoder(256, 2, 4).to(DEVICE)
    optimizer = torch.optim.AdamW(sherd_net.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator(device=DEVICE).manual_seed(9)
    batches = [break_sherds(profiles, generator) for _ in range(8)]

    losses = []
    times = []
    for i in range(WARMUP):
        sherds, types = batches[i % len(batches)]
        losses.append(train_step(sherd_net, catalogue_net, optimizer, profiles, sherds, types))
    torch.cuda.synchronize()
    for block in range(BLOCKS):
        begin = time.perf_counter()
        for i in range(PER_BLOCK):
            sherds, types = batches[(block * PER_BLOCK + i) % len(batches)]
            losses.append(train_step(sherd_net, catalogue_net, optimizer, profiles, sherds, types))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)

    losses = torch.stack(losses).tolist()
    print(json.dumps({"program": NAME, "steps": len(losses),
                      "us": statistics.median(times) * 1e6,
                      "result": [losses[0], losses[-1]]}))


if __name__ == "__main__":
    main()
