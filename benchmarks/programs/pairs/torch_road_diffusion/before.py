"""Spread traffic counts over a road network: personalised propagation of node features."""

import json
import statistics
import time

import torch

DEVICE = "cuda"
NODES = 400_000
ROADS = 4_000_000
FEATURES = 64
ROUNDS = 6
ALPHA = 0.1
WARMUP, STEPS = 4, 36


class RoadNetwork:
    """Directed roads with symmetric normalisation, as an edge list."""

    def __init__(self, generator):
        self.source = torch.randint(0, NODES, (ROADS,), generator=generator, device=DEVICE)
        hub = torch.rand(ROADS, generator=generator, device=DEVICE).square()
        self.target = (hub * NODES).long().clamp_(max=NODES - 1)
        ones = torch.ones(ROADS, device=DEVICE)
        into = torch.zeros(NODES, device=DEVICE).index_add_(0, self.target, ones)
        out = torch.zeros(NODES, device=DEVICE).index_add_(0, self.source, ones)
        self.weight = (out[self.source].clamp(1) * into[self.target].clamp(1)).rsqrt()

    def spread(self, x):
        messages = x[self.source] * self.weight[:, None]
        return torch.zeros_like(x).index_add_(0, self.target, messages)


def propagate(network, counts):
    x = counts
    for _ in range(ROUNDS):
        x = (1 - ALPHA) * network.spread(x) + ALPHA * counts
    return x


@torch.inference_mode()
def main():
    generator = torch.Generator(device=DEVICE).manual_seed(15)
    network = RoadNetwork(generator)
    days = [torch.rand(NODES, FEATURES, generator=generator, device=DEVICE) for _ in range(3)]
    laps = []
    for day in range(WARMUP + STEPS):
        begin = time.perf_counter()
        smooth = propagate(network, days[day % 3])
        torch.cuda.synchronize()
        laps.append(time.perf_counter() - begin)
    us = statistics.median(laps[WARMUP:]) * 1e6
    result = [smooth.double().mean().item(), smooth.double().square().mean().item()]
    print(f"{us / 1e3:.2f} ms a day, mean {result[0]:.6f}")
    print(
        json.dumps(
            {"program": "torch_road_diffusion", "steps": len(laps), "us": us, "result": result}
        )
    )


if __name__ == "__main__":
    main()
