"""Emulator of a radiative transfer code: atmosphere profiles to spectral radiances, mixed precision."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
PROFILE = 512
CHANNELS = 1024
WIDTH = 8192
HIDDEN = 2
BATCH = 16384
POOL = 3
WARMUP = 4
BLOCKS = 6
STEPS_PER_BLOCK = 6


class Emulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(PROFILE, WIDTH)
        self.hidden = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(HIDDEN)])
        self.head = nn.Linear(WIDTH, CHANNELS)

    def forward(self, profile):
        h = F.relu(self.stem(profile))
        for layer in self.hidden:
            h = F.relu(layer(h))
        return self.head(h)


def synthetic_pairs(generator):
    """Profiles and smooth nonlinear spectra of them."""
    with torch.no_grad():
        profile = torch.randn(BATCH, PROFILE, device=DEVICE, generator=generator)
        mixing = torch.randn(PROFILE, CHANNELS, device=DEVICE, generator=generator) / PROFILE**0.5
        return profile.bfloat16(), torch.tanh(profile @ mixing).bfloat16()


def main():
    torch.manual_seed(21)
    generator = torch.Generator(device=DEVICE).manual_seed(22)
    with torch.device(DEVICE):
        model = Emulator()
    pool = [synthetic_pairs(generator) for _ in range(POOL)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)

    def train(i):
        profile, radiance = pool[i % POOL]
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            predicted = model(profile)
        loss = F.mse_loss(predicted.float(), radiance.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    losses = [train(i) for i in range(WARMUP)]
    torch.cuda.synchronize()
    times = []
    count = WARMUP
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            losses.append(train(count))
            count += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"loss {losses[-1].item():.5f}, {BATCH / times[-1]:.0f} profiles/s")
    out = {
        "program": "torch_spectra_emulator",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [torch.stack(losses).mean().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
