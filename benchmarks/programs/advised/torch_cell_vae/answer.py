"""Variational autoencoder for single-cell RNA counts (Poisson likelihood)."""

import json
import statistics
import time

import torch
import torch._dynamo
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

torch._dynamo.config.suppress_errors = True  # eager where the compiler cannot


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
        return self.mean(h).float(), self.logvar(h).float().clamp(-8.0, 4.0)


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
        return F.log_softmax(self.body(z), dim=1) + log_depth


class CellVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def forward(self, counts, noise, beta):
        mean, logvar = self.encoder(torch.log1p(counts))
        z = mean + noise * torch.exp(0.5 * logvar)
        log_depth = counts.sum(dim=1, keepdim=True).clamp_min(1.0).log()
        log_rate = self.decoder(z, log_depth)
        nll = F.poisson_nll_loss(log_rate, counts, log_input=True)
        kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(dim=1).mean() / GENES
        return nll + beta * kl


def main():
    torch.cuda.set_stream(torch.cuda.Stream())  # one stream for warm-up, capture and replay
    torch.manual_seed(5)
    generator = torch.Generator(DEVICE).manual_seed(17)
    counts = simulate_counts(generator)
    model = CellVAE().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True, capturable=True)
    noise_generator = torch.Generator(DEVICE).manual_seed(23)
    losses = []
    noise = torch.empty(BATCH, LATENT, device=DEVICE)
    beta = torch.zeros((), device=DEVICE)
    graphs = {}

    @torch.compile
    def loss_of(batch, noise, beta):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return model(batch, noise, beta)

    def train(at):
        loss = loss_of(counts[at : at + BATCH], noise, beta)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def capture():
        """One CUDA graph per batch of cells; capturing runs nothing."""
        pool = torch.cuda.graph_pool_handle()
        for at in range(0, CELLS, BATCH):
            optimizer.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.current_stream()):
                loss = train(at)
            graphs[at] = graph, loss

    def step(i):
        at = (i * BATCH) % CELLS
        noise.normal_(generator=noise_generator)
        beta.fill_(min(1.0, i / 100))
        if at in graphs:
            graph, loss = graphs[at]
            graph.replay()
        else:
            loss = train(at)
        losses.append(loss.clone())

    done = 0
    for _ in range(8):
        step(done)
        done += 1
    capture()
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
