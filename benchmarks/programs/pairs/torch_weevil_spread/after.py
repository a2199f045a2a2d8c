"""Spreads a bark weevil among timber yards over months of shipments, for an ensemble of weather scenarios."""
import json
import time

import numpy as np
import torch

NAME = "torch_weevil_spread"
SEED = 608
DEVICE = torch.device("cuda")

YARDS = 2048
SCENARIOS = 40960
DAYS_PER_MONTH = 28
MONTHS = 120
WARMUP = 20
BLOCKS = 10
PER_BLOCK = 20

torch.set_float32_matmul_precision("high")


class ShipmentNetwork:
    """Daily movement of insects with the timber, from the road distances between the yards."""

    def __init__(self, generator, stay=0.96, reach=0.08):
        places = torch.rand(YARDS, 2, generator=generator).to(DEVICE)
        turnover = torch.rand(YARDS, generator=generator).to(DEVICE) + 0.2
        flow = torch.exp(-torch.cdist(places, places) / reach) * turnover
        flow.fill_diagonal_(0.0)
        flow = flow / flow.sum(dim=1, keepdim=True)
        self.daily = stay * torch.eye(YARDS, device=DEVICE) + (1.0 - stay) * flow

    def over(self, days):
        """Movement over a number of days."""
        return torch.linalg.matrix_power(self.daily, days)


@torch.compile
def breed(insects, capacity, growth):
    """Beverton-Holt growth of a month in every yard and scenario."""
    return growth * insects / (1.0 + (growth - 1.0).clamp(min=0.0) * insects / capacity)


class Outbreak:
    def __init__(self, network, generator):
        self.monthly = network.over(DAYS_PER_MONTH)
        self.capacity = (50.0 + 150.0 * torch.rand(YARDS, generator=generator)).to(DEVICE)
        season = 1.0 + 0.6 * torch.sin(torch.arange(MONTHS) * (2.0 * torch.pi / 12.0))
        weather = torch.exp(0.25 * torch.randn(MONTHS, SCENARIOS, 1, generator=generator))
        self.growth = (1.1 * season.view(-1, 1, 1) * weather).to(DEVICE)
        seeds = torch.randperm(YARDS, generator=generator)[:64].to(DEVICE)
        self.insects = torch.full((SCENARIOS, YARDS), 0.01, device=DEVICE)
        self.insects[:, seeds] = 20.0
        self.arrived = torch.empty_like(self.insects)
        self.watched = torch.randperm(YARDS, generator=generator)[:32].to(DEVICE)
        self.month = 0

    @torch.no_grad()
    def advance(self):
        """One month: the shipments carry the insects, then they breed."""
        torch.mm(self.insects, self.monthly, out=self.arrived)
        self.insects = breed(self.arrived, self.capacity, self.growth[self.month % MONTHS])
        self.month += 1
        return self.insects[:, self.watched].mean(dim=0)


def main():
    generator = torch.Generator().manual_seed(SEED)
    outbreak = Outbreak(ShipmentNetwork(generator), generator)
    for _ in range(WARMUP):
        outbreak.advance()
    torch.cuda.synchronize()

    times, trap_counts = [], []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            trap_counts.append(outbreak.advance())
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK)

    result = [float(torch.stack(trap_counts).mean()), float(outbreak.insects.mean()),
              float(outbreak.insects.std())]
    print(json.dumps({"program": NAME, "steps": BLOCKS * PER_BLOCK, "us": float(np.median(times)) * 1e6,
                      "result": result}))


if __name__ == "__main__":
    main()
