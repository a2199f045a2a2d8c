"""Deep ensemble for the yield strength of multi-component alloys.

Eight networks with their own weights are trained side by side on bootstrap
weights of one composition table; the spread gives the uncertainty used when
the next melt is chosen.
"""
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_alloy_ensemble"
MEMBERS = 8
ELEMENTS = 30
DESCRIPTORS = 128
WIDTH = 2048
BATCH = 4096
ALLOYS = 65536
WARMUP = 8
BLOCKS = 8
PER_BLOCK = 8


def make_alloys(generator, device):
    """Compositions that sum to one and a strength with solute interactions."""
    raw = torch.rand(ALLOYS, ELEMENTS, generator=generator, device=device).pow(3.0)
    composition = raw / raw.sum(dim=1, keepdim=True)
    projection = torch.randn(ELEMENTS, DESCRIPTORS, generator=generator, device=device)
    descriptors = torch.sin(4.0 * composition @ projection)
    coupling = torch.randn(ELEMENTS, ELEMENTS, generator=generator, device=device)
    pair = ((composition @ coupling) * composition).sum(dim=1)
    linear = composition @ torch.randn(ELEMENTS, generator=generator, device=device)
    strength = 3.0 * pair + linear
    strength = (strength - strength.mean()) / strength.std()
    noise = torch.randn(ALLOYS, generator=generator, device=device)
    return descriptors, strength + 0.05 * noise


class MemberLinear(nn.Module):
    """One linear layer for each member of the ensemble."""

    def __init__(self, members, inputs, outputs):
        super().__init__()
        bound = math.sqrt(3.0 / inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class AlloyEnsemble(nn.Module):
    def __init__(self, members, inputs, width):
        super().__init__()
        self.members = members
        self.inlet = MemberLinear(members, inputs, width)
        self.mid1 = MemberLinear(members, width, width)
        self.mid2 = MemberLinear(members, width, width)
        self.mid3 = MemberLinear(members, width, width)
        self.outlet = MemberLinear(members, width, 1)

    def forward(self, x):
        h = x.unsqueeze(0).expand(self.members, -1, -1)
        h = F.relu(self.inlet(h))
        h = F.relu(self.mid1(h))
        h = F.relu(self.mid2(h))
        h = F.relu(self.mid3(h))
        return self.outlet(h).squeeze(2)


def main():
    torch.manual_seed(19)
    device = torch.device("cuda")
    generator = torch.Generator(device=device).manual_seed(3)
    descriptors, strength = make_alloys(generator, device)
    bootstrap = torch.poisson(torch.ones(MEMBERS, ALLOYS, device=device), generator=generator)

    torch.set_float32_matmul_precision("high")
    with torch.device(device):
        model = AlloyEnsemble(MEMBERS, DESCRIPTORS, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    total = WARMUP + BLOCKS * PER_BLOCK
    picks = torch.randint(0, ALLOYS, (total, BATCH), generator=generator, device=device)
    losses = []

    def train_step(n):
        rows = picks[n]
        prediction = model(descriptors[rows])
        error = (prediction - strength[rows]).square()
        loss = (error * bootstrap[:, rows]).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    steps = 0
    for _ in range(WARMUP):
        train_step(steps)
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            train_step(steps)
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    curve = torch.stack(losses).cpu()
    result = [float(curve[0]), float(curve[:16].mean()), float(curve[-16:].mean())]
    times.sort()
    print(json.dumps({"program": NAME, "steps": steps, "us": times[len(times) // 2], "result": result}))


if __name__ == "__main__":
    main()
