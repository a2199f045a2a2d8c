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
    """Directed roads with symmetric normalisation, as a CSR matrix: a row for each target."""

    def __init__(self, generator):
        source = torch.randint(0, NODES, (ROADS,), generator=generator, device=DEVICE)
        hub = torch.rand(ROADS, generator=generator, device=DEVICE).square()
        target = (hub * NODES).long().clamp_(max=NODES - 1)
        ones = torch.ones(ROADS, device=DEVICE)
        into = torch.zeros(NODES, device=DEVICE).index_add_(0, target, ones)
        out = torch.zeros(NODES, device=DEVICE).index_add_(0, source, ones)
        weight = (out[source].clamp(1) * into[target].clamp(1)).rsqrt()
        order = torch.argsort(target * NODES + source)
        rows = torch.zeros(NODES + 1, dtype=torch.int64, device=DEVICE)
        rows[1:] = torch.bincount(target, minlength=NODES).cumsum(0)
        self.matrix = torch.sparse_csr_tensor(
            rows.int(), source[order].int(), weight[order], (NODES, NODES), check_invariants=False
        )


def propagate(network, counts):
    x = counts
    for _ in range(ROUNDS):
        # (1 - ALPHA) * matrix @ x + ALPHA * counts
        x = torch.addmm(counts, network.matrix, x, beta=ALPHA, alpha=1 - ALPHA)
    return x


@torch.no_grad()
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
