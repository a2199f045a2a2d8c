"""Variational autoencoder for single-cell RNA counts (Poisson likelihood)."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CELLS = 32768
GENES = 4096
HIDDEN = 2048
MIDDLE = 1024
LATENT = 32
BATCH = 4096
BLOCKS = 10
STEPS_PER_BLOCK = 15
DEVICE = "cuda"


def simulate_counts(generator):
    """Cells drawn from a few dozen programmes of gene activity, library size log-normal."""
    programmes = torch.randn(24, GENES, generator=generator, device=DEVICE) * 0.7
    usage = torch.rand(CELLS, 24, generator=generator, device=DEVICE).pow(4)
    usage = usage / usage.sum(dim=1, keepdim=True)
    rate = torch.softmax(usage @ programmes * 3.0, dim=1)
    depth = torch.exp(torch.randn(CELLS, 1, generator=generator, device=DEVICE) * 0.3 + 8.0)
    return torch.poisson(rate.mul_(depth), generator=generator)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(GENES, HIDDEN),
            nn.LayerNorm(HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, MIDDLE),
            nn.LayerNorm(MIDDLE),
            nn.ReLU(inplace=True),
        )
        self.mean = nn.Linear(MIDDLE, LATENT)
        self.logvar = nn.Linear(MIDDLE, LATENT)

    def forward(self, x):
        h = self.body(x)
        return self.mean(h), self.logvar(h).clamp(-8.0, 4.0)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(LATENT, MIDDLE),
            nn.LayerNorm(MIDDLE),
            nn.ReLU(inplace=True),
            nn.Linear(MIDDLE, HIDDEN),
            nn.LayerNorm(HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, GENES),
        )

    def forward(self, z, log_depth):
        return F.log_softmax(self.body(z).float(), dim=1) + log_depth


class CellVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def forward(self, counts, noise, beta):
        log_depth = counts.sum(dim=1, keepdim=True).clamp_min(1.0).log()
        with torch.autocast("cuda", dtype=torch.bfloat16):  # products only; the loss is float32
            mean, logvar = self.encoder(torch.log1p(counts))
            mean, logvar = mean.float(), logvar.float()
            z = mean + noise * torch.exp(0.5 * logvar)
            log_rate = self.decoder(z, log_depth)
        nll = F.poisson_nll_loss(log_rate, counts, log_input=True)
        kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(dim=1).mean() / GENES
        return nll + beta * kl


def main():
    torch.manual_seed(5)
    generator = torch.Generator(DEVICE).manual_seed(17)
    counts = simulate_counts(generator)
    model = CellVAE().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    forward = torch.compile(model, dynamic=False)
    beta = torch.zeros((), device=DEVICE)
    noise_generator = torch.Generator(DEVICE).manual_seed(23)
    losses = []

    def step(i):
        at = (i * BATCH) % CELLS
        batch = counts[at : at + BATCH]
        noise = torch.randn(BATCH, LATENT, generator=noise_generator, device=DEVICE)
        beta.fill_(min(1.0, i / 100))
        loss = forward(batch, noise, beta.clone())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    done = 0
    for _ in range(8):
        step(done)
        done += 1
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    checksum = torch.stack(losses).mean().item()
    print(
        json.dumps(
            {
                "program": "torch_cell_vae",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
