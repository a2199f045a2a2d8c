"""Re-identification of penguins from chest patterns, trained against a large memory
bank of known individuals (one prototype each, updated with momentum)."""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BIRDS = 98304
DIM = 512
PATCHES, PATCH_DIM = 64, 192
BATCH = 2048
WIDTH = 256
MOMENTUM, TEMPERATURE = 0.9, 0.07
WARMUP, BLOCKS, PER_BLOCK = 5, 5, 5


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.token = nn.Linear(PATCHES, PATCHES)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PatternEncoder(nn.Module):
    def __init__(self, depth=1):
        super().__init__()
        self.stem = nn.Linear(PATCH_DIM, WIDTH)
        self.blocks = nn.ModuleList(MixerBlock() for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, DIM)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x).mean(dim=1))


class MemoryBank(nn.Module):
    """Unit-length prototypes; class scores are cosines over a temperature."""

    def __init__(self, birds, dim):
        super().__init__()
        self.register_buffer("bank", F.normalize(torch.randn(birds, dim), dim=1))

    def scores(self, emb):
        query = F.normalize(emb.float(), dim=1) / TEMPERATURE
        return query @ self.bank.t()

    @torch.no_grad()
    def update(self, emb, ids):
        fresh = F.normalize(emb.float(), dim=1)
        mixed = MOMENTUM * self.bank[ids] + (1 - MOMENTUM) * fresh
        self.bank[ids] = F.normalize(mixed, dim=1)


def synth_sightings(dev, batches, seed=8):
    g = torch.Generator(device=dev).manual_seed(seed)
    basis = torch.randn(64, PATCHES * PATCH_DIM, device=dev, generator=g) / 8
    out = []
    for _ in range(batches):
        ids = torch.randperm(BIRDS, device=dev, generator=g)[:BATCH]
        code = torch.sin(ids[:, None] * torch.arange(1, 65, device=dev) * 0.37)
        x = code @ basis + 0.3 * torch.randn(BATCH, PATCHES * PATCH_DIM, device=dev, generator=g)
        out.append((x.view(BATCH, PATCHES, PATCH_DIM).to(torch.bfloat16), ids))
    return out


def main():
    torch.manual_seed(17)
    torch.set_float32_matmul_precision("high")
    dev = torch.device("cuda")
    encoder = PatternEncoder().to(dev)
    memory = MemoryBank(BIRDS, DIM).to(dev)
    opt = torch.optim.AdamW(encoder.parameters(), lr=5e-4, weight_decay=0.02, fused=True)
    sightings = synth_sightings(dev, 4)
    loss_sum = torch.zeros((), device=dev)

    def train_step(i):
        patches, ids = sightings[i % len(sightings)]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            emb = encoder(patches)
        # softmax over the whole colony, kept out of autocast for the large exponents
        loss = F.cross_entropy(memory.scores(emb), ids)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        memory.update(emb.detach(), ids)
        loss_sum.add_(loss.detach())

    step = 0
    for _ in range(WARMUP):
        train_step(step)
        step += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            train_step(step)
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t0) / PER_BLOCK)
    us = 1e6 * sorted(times)[len(times) // 2]
    print(json.dumps({"program": "torch_penguin_reid", "steps": step, "us": round(us, 1),
                      "result": [float(loss_sum) / step, float(memory.bank[:, 0].square().mean())]}))


if __name__ == "__main__":
    main()
