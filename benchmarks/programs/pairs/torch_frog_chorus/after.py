"""Frog species from night recordings: a deep temporal convolution network,
trained with AdamW, a limit on the gradient's norm and averaged weights."""
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

PROGRAM = "torch_frog_chorus"
MELS, FRAMES, SPECIES = 64, 256, 30
WIDTH, DEPTH, BATCH = 96, 24, 32
WARMUP, BLOCKS, BLOCK = 6, 8, 5
SEED = 415


class CallBlock(nn.Module):
    """Dilated convolution, norm and a pointwise mix with a learned scale."""

    def __init__(self, dilation):
        super().__init__()
        self.listen = nn.Conv1d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(8, WIDTH)
        self.mix = nn.Conv1d(WIDTH, WIDTH, 1)
        self.scale = nn.Parameter(torch.full((WIDTH, 1), 0.2))

    def forward(self, x):
        return x + self.scale * self.mix(F.gelu(self.norm(self.listen(x))))


class ChorusNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(MELS, WIDTH, 1)
        self.blocks = nn.Sequential(*[CallBlock(2 ** (i % 6)) for i in range(DEPTH)])
        self.head = nn.Linear(WIDTH, SPECIES)

    def forward(self, mel):
        return self.head(self.blocks(self.stem(mel)).mean(-1))


class Updater:
    """AdamW with a limit on the norm; keeps averaged weights for evaluation."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.98), decay=0.01, eps=1e-8,
                 limit=1.0, average=0.99):
        self.params = [p for p in params if p.requires_grad]
        self.limit, self.average = limit, average
        self.adamw = torch.optim.AdamW(self.params, lr=lr, betas=betas, weight_decay=decay,
                                       eps=eps, fused=True)
        self.averaged = [p.detach().clone() for p in self.params]

    def zero_grad(self):
        self.adamw.zero_grad(set_to_none=True)

    @torch.no_grad()
    def step(self):
        norm = nn.utils.clip_grad_norm_(self.params, self.limit, foreach=True)
        self.adamw.step()
        torch._foreach_lerp_(self.averaged, self.params, 1 - self.average)
        return norm


def record_night(device, gen, batches=8):
    """Mel spectrograms: every species calls at its own band and tempo."""
    species = torch.randint(SPECIES, (batches, BATCH), device=device, generator=gen)
    band = torch.arange(MELS, device=device)[:, None]
    t = torch.arange(FRAMES, device=device)[None, :]
    s = species[..., None, None].float()
    pulse = torch.sin(0.1 * t * (1 + s / 7)).clamp_min(0)
    mel = 2 * torch.exp(-((band - 2 - 2 * s) / 4) ** 2) * pulse
    return mel + torch.randn(mel.shape, device=device, generator=gen) * 0.5, species


def main():
    torch.manual_seed(SEED)
    device = torch.device("cuda")
    torch.set_float32_matmul_precision("high")
    gen = torch.Generator(device=device).manual_seed(SEED)
    mels, species = record_night(device, gen)
    model = ChorusNet().to(device)
    updater = Updater(model.parameters())
    steps = WARMUP + BLOCKS * BLOCK
    losses = torch.zeros(steps, device=device)
    norms = torch.zeros(steps, device=device)

    def step(k):
        i = k % len(mels)
        loss = F.cross_entropy(model(mels[i]), species[i])
        updater.zero_grad()
        loss.backward()
        norms[k] = updater.step()
        losses[k] = loss.detach()

    for k in range(WARMUP):
        step(k)
    torch.cuda.synchronize()
    times = []
    for b in range(BLOCKS):
        begin = time.perf_counter()
        for k in range(BLOCK):
            step(WARMUP + b * BLOCK + k)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / BLOCK)

    size = math.sqrt(sum(float(a.square().sum()) for a in updater.averaged))
    print(f"{len(updater.params)} tensors, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": statistics.median(times) * 1e6,
                      "result": [float(losses[0]), float(losses[:12].mean()), float(norms[0]), size]}))


if __name__ == "__main__":
    main()
