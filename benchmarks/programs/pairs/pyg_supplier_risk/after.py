"""Daily stress scores for firms in a supplier network.

Stress indicators of each firm spread along the invoices it receives from its
suppliers; a small readout turns the spread indicators into a default score.
"""
import json
import statistics
import time

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, scatter

NAME = "pyg_supplier_risk"
FIRMS = 150_000
INVOICES = 4_000_000
INDICATORS = 64
HOPS = 3
RESTART = 0.2
CALENDAR = 16

WARMUP = 10
BLOCKS = 10
STEPS_PER_BLOCK = 5


def make_network(device):
    gen = torch.Generator(device=device).manual_seed(2089)
    supplier = (FIRMS * torch.rand(INVOICES, generator=gen, device=device) ** 1.3).long()
    customer = (FIRMS * torch.rand(INVOICES, generator=gen, device=device)).long()
    supplier = supplier.clamp_(max=FIRMS - 1)
    customer = customer.clamp_(max=FIRMS - 1)
    amount = torch.exp(0.8 * torch.randn(INVOICES, generator=gen, device=device))
    edge_index = torch.stack([supplier, customer])
    edge_index, amount = coalesce(
        edge_index, amount, num_nodes=FIRMS, reduce="sum", sort_by_row=False
    )
    bought = scatter(amount, edge_index[1], dim=0, dim_size=FIRMS, reduce="sum")
    share = amount / bought[edge_index[1]]
    indicators = torch.randn(FIRMS, INDICATORS, generator=gen, device=device)
    return Data(x=indicators, edge_index=edge_index, edge_attr=share, num_nodes=FIRMS)


class InvoiceSpread(nn.Module):
    """Share weighted sum of the suppliers' indicators."""

    def __init__(self, edge_index, share):
        super().__init__()
        received = torch.bincount(edge_index[1], minlength=FIRMS)
        offsets = torch.zeros(FIRMS + 1, dtype=torch.long, device=edge_index.device)
        offsets[1:] = torch.cumsum(received, dim=0)
        self.invoices = torch.sparse_csr_tensor(
            offsets, edge_index[0].contiguous(), share, size=(FIRMS, FIRMS)
        )

    def forward(self, x):
        return torch.sparse.mm(self.invoices, x)


class StressModel(nn.Module):
    def __init__(self, spread):
        super().__init__()
        self.spread = spread
        self.readout = nn.Sequential(
            nn.Linear(INDICATORS, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, x):
        h = x
        for _ in range(HOPS):
            h = torch.lerp(self.spread(h), x, RESTART)
        return torch.sigmoid(self.readout(h)).squeeze(-1)


@torch.no_grad()
def main():
    device = torch.device("cuda")
    network = make_network(device)
    torch.manual_seed(7)
    spread = InvoiceSpread(network.edge_index, network.edge_attr)
    model = StressModel(spread).to(device).eval()

    gen = torch.Generator(device=device).manual_seed(55)
    shocks = 0.5 * torch.randn(CALENDAR, INDICATORS, generator=gen, device=device)
    smoothed = torch.full((FIRMS,), 0.5, device=device)

    day = 0

    def step():
        nonlocal day
        score = model(network.x + shocks[day % CALENDAR])
        smoothed.lerp_(score, 0.1)
        day += 1

    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    final = smoothed.double()
    print(json.dumps({
        "program": NAME,
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [final.mean().item(), final.norm().item(), final.max().item()],
    }))


if __name__ == "__main__":
    main()
