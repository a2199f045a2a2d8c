"""Receding-horizon control of the tunnel kilns of a brickworks.

Every kiln has its own neural twin (zones, burners and network width differ).
A control cycle draws perturbed burner schedules, rolls every twin over the
horizon, blends the schedules by their cost and applies the first setting.
The cycle is captured once as a CUDA graph and replayed at each tick.
"""
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_kiln_controllers"
KILNS = 14
SAMPLES = 256
HORIZON = 10
WARMUP = 60
BLOCKS = 8
BLOCK_STEPS = 10


class KilnTwin(nn.Module):
    """One-tick temperature predictor of a kiln."""

    def __init__(self, zones, burners, width, depth=3):
        super().__init__()
        sizes = [zones + burners] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.head = nn.Linear(width, zones)

    def forward(self, state, setting):
        x = torch.cat([state, setting], dim=-1)
        for layer in self.hidden:
            x = F.silu(layer(x))
        return torch.add(state, self.head(x), alpha=0.2)


class Kiln:
    """Twin, set points and the present burner schedule of one kiln."""

    def __init__(self, index, device):
        self.zones = 24 + 8 * (index % 5)
        self.burners = 8 + 4 * (index % 3)
        width = 192 + 32 * index
        gen = torch.Generator().manual_seed(500 + index)
        torch.manual_seed(900 + index)
        self.twin = KilnTwin(self.zones, self.burners, width).to(device).eval()
        shape = torch.linspace(0.0, 3.14159, self.zones)
        self.target = (0.8 * torch.sin(shape)).to(device)
        self.state = (0.1 * torch.randn(self.zones, generator=gen)).to(device)
        self.schedule = torch.full((HORIZON, self.burners), 0.5, device=device)
        self.noise = (0.15 * torch.randn(SAMPLES, HORIZON, self.burners, generator=gen)).to(device)
        coupling = torch.rand(self.zones, self.burners, generator=gen)
        self.coupling = (0.2 * coupling / coupling.sum(1, keepdim=True)).to(device)
        self.cost = torch.zeros((), device=device)

    def control(self):
        settings = torch.clamp(self.schedule + self.noise, 0.0, 1.0)
        state = self.state.expand(SAMPLES, self.zones)
        path = []
        for tick in range(HORIZON):
            state = self.twin(state, settings[:, tick])
            path.append(state)
        error = torch.stack(path, dim=1) - self.target
        cost = error.square().mean(dim=(1, 2))
        blend = torch.softmax(-cost / 0.02, dim=0)
        schedule = torch.matmul(blend, settings.reshape(SAMPLES, -1))
        schedule = schedule.view(HORIZON, self.burners)
        heat = torch.mv(self.coupling, schedule[0])
        self.state.mul_(0.88).add_(heat)
        self.schedule.copy_(torch.roll(schedule, -1, 0))
        self.cost.copy_((blend * cost).sum())


def control_cycle(kilns, lanes):
    main_stream = torch.cuda.current_stream()
    for kiln, lane in zip(kilns, lanes):
        lane.wait_stream(main_stream)
        with torch.cuda.stream(lane):
            kiln.control()
    for lane in lanes:
        main_stream.wait_stream(lane)


def capture(kilns):
    lanes = [torch.cuda.Stream() for _ in kilns]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            control_cycle(kilns, lanes)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        control_cycle(kilns, lanes)
    return graph


@torch.no_grad()
def main():
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    kilns = [Kiln(i, device) for i in range(KILNS)]
    graph = capture(kilns)

    for _ in range(WARMUP):
        graph.replay()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    times.sort()
    median = 0.5 * (times[(len(times) - 1) // 2] + times[len(times) // 2])
    mean_state = torch.stack([k.state.mean() for k in kilns]).mean().item()
    burners = torch.stack([k.schedule.mean() for k in kilns]).mean().item()
    cost = torch.stack([k.cost for k in kilns]).sum().item()
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS, "us": median * 1e6,
                      "result": [mean_state, burners, cost]}))


if __name__ == "__main__":
    main()
