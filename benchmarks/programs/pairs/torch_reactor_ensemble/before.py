"""Ensemble of probabilistic dynamics models for a stirred-tank reactor.

Model-based control needs calibrated uncertainty, so we train an ensemble of
small networks on bootstrap resamples and use their disagreement.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 313
MEMBERS = 32
OBS = 18
ACT = 6
HIDDEN = 200
BATCH = 256
RECORDS = 20_000
WARMUP = 8
BLOCKS = 8
BLOCK_STEPS = 5


class DynamicsModel(nn.Module):
    """Predicts mean and log variance of the change of state."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(OBS + ACT, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, 2 * OBS)

    def forward(self, x):
        h = F.silu(self.fc1(x))
        h = F.silu(self.fc2(h))
        mean, log_var = self.out(h).chunk(2, dim=-1)
        return mean, 5.0 * torch.tanh(log_var / 5.0)


class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList(DynamicsModel() for _ in range(MEMBERS))

    def loss(self, inputs, targets):
        """inputs (MEMBERS, BATCH, OBS + ACT), one bootstrap batch a member."""
        total = 0.0
        for member, x, y in zip(self.members, inputs, targets):
            mean, log_var = member(x)
            nll = (mean - y).square() * torch.exp(-log_var) + log_var
            total = total + nll.mean()
        return total / MEMBERS


def plant_records(device):
    """Noisy transitions of a smooth nonlinear plant."""
    gen = torch.Generator().manual_seed(SEED)
    state = torch.randn(RECORDS, OBS, generator=gen)
    action = torch.rand(RECORDS, ACT, generator=gen) * 2 - 1
    a = torch.randn(OBS, OBS, generator=gen) / OBS ** 0.5
    b = torch.randn(ACT, OBS, generator=gen) / ACT ** 0.5
    delta = torch.tanh(state @ a + action @ b) - 0.2 * state
    delta = delta + 0.05 * torch.randn(RECORDS, OBS, generator=gen)
    return torch.cat([state, action], 1).to(device), delta.to(device)


class Bootstrap:
    """Draws one batch for every member from its own stream of indices."""

    def __init__(self, inputs, targets):
        self.inputs = inputs
        self.targets = targets
        self.gen = torch.Generator(device=inputs.device)
        self.gen.manual_seed(SEED + 1)

    def draw(self):
        pick = torch.randint(RECORDS, (MEMBERS, BATCH), generator=self.gen,
                             device=self.inputs.device)
        return self.inputs[pick], self.targets[pick]


def train_step(ensemble, opt, bootstrap):
    inputs, targets = bootstrap.draw()
    loss = ensemble.loss(inputs, targets)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()


def main():
    torch.manual_seed(SEED)
    device = torch.device("cuda")
    ensemble = Ensemble().to(device)
    opt = torch.optim.Adam(ensemble.parameters(), lr=5e-4, fused=True)
    bootstrap = Bootstrap(*plant_records(device))
    total = torch.zeros((), device=device)

    def run(count):
        for _ in range(count):
            total.add_(train_step(ensemble, opt, bootstrap))

    run(WARMUP)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(BLOCK_STEPS)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)

    steps = WARMUP + BLOCKS * BLOCK_STEPS
    print(json.dumps({
        "program": "torch_reactor_ensemble",
        "steps": steps,
        "us": statistics.median(times),
        "result": [total.item() / steps],
    }))


if __name__ == "__main__":
    main()
