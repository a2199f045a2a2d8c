"""Analog Monte Carlo of neutrons in a two-region slab shield.

Every history is a row of the particle bank.  A step tracks one batch of
histories through a fixed number of flights and tallies leakage, absorption
and the track length in each region.
"""
import json
import statistics
import time

import torch

SEED = 77
HISTORIES = 100_000
FLIGHTS = 16
WARMUP = 6
EAGER = 3                 # of the warm-up, before the step is captured
BLOCKS = 8
BLOCK_STEPS = 5

THICKNESS = 12.0          # cm
INTERFACE = 5.0           # water | steel
SIGMA_T = (0.85, 0.60)    # 1/cm at 1 MeV
ABSORB = (0.06, 0.11)     # absorbed share of collisions
ALPHA = (0.20, 0.93)      # lowest E'/E after elastic scattering


class Bank:
    """State of one batch of histories."""

    def __init__(self, count, gen, device):
        self.x = torch.zeros(count, device=device)
        self.mu = torch.rand(count, generator=gen, device=device).sqrt_()
        self.energy = torch.full((count,), 2.0, device=device)
        self.alive = torch.ones(count, dtype=torch.bool, device=device)


class Tally:
    def __init__(self, device):
        self.right = torch.zeros((), device=device)
        self.left = torch.zeros((), device=device)
        self.absorbed = torch.zeros((), device=device)
        self.track = torch.zeros(2, device=device)
        self.exit_energy = torch.zeros((), device=device)

    def as_list(self, batches):
        n = HISTORIES * batches
        return [self.right.item() / n, self.left.item() / n, self.absorbed.item() / n,
                self.exit_energy.item() / n, *(self.track / n).tolist()]


def region_value(pair, in_steel):
    return in_steel * (pair[1] - pair[0]) + pair[0]


def fly(bank, tally, u):
    """Move the live particles to their next collision or out of the slab."""
    in_steel = bank.x > INTERFACE
    sigma = region_value(SIGMA_T, in_steel) * (bank.energy + 0.1).pow(-0.2)
    dist = -torch.log(u) / sigma

    tally.track[0] += (dist * (bank.alive & ~in_steel)).sum()
    tally.track[1] += (dist * (bank.alive & in_steel)).sum()
    bank.x = torch.where(bank.alive, bank.x + dist * bank.mu, bank.x)

    out_right = bank.alive & (bank.x > THICKNESS)
    out_left = bank.alive & (bank.x < 0)
    tally.right += out_right.sum()
    tally.left += out_left.sum()
    tally.exit_energy += (bank.energy * out_right).sum()
    bank.alive &= ~(out_right | out_left)


def collide(bank, tally, u_kind, u_energy, u_angle):
    """Absorb, or scatter elastically into a new direction and energy."""
    in_steel = bank.x > INTERFACE
    dies = bank.alive & (u_kind < region_value(ABSORB, in_steel))
    tally.absorbed += dies.sum()
    bank.alive &= ~dies

    alpha = region_value(ALPHA, in_steel)
    loss = alpha + (1.0 - alpha) * u_energy
    bank.energy = torch.where(bank.alive, bank.energy * loss, bank.energy)
    bank.mu = torch.where(bank.alive, 2.0 * u_angle - 1.0, bank.mu)


def track_batch(tally, gen, device):
    bank = Bank(HISTORIES, gen, device)
    for _ in range(FLIGHTS):
        u = torch.rand(4, HISTORIES, generator=gen, device=device).clamp_min_(1e-7)
        fly(bank, tally, u[0])
        collide(bank, tally, u[1], u[2], u[3])


def main():
    device = torch.device("cuda")
    gen = torch.Generator(device=device)
    gen.manual_seed(SEED)
    tally = Tally(device)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(EAGER):
            track_batch(tally, gen, device)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(gen)
    with torch.cuda.graph(graph, stream=side):
        track_batch(tally, gen, device)
    for _ in range(EAGER, WARMUP):
        graph.replay()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)

    steps = WARMUP + BLOCKS * BLOCK_STEPS
    print(json.dumps({
        "program": "torch_neutron_slab",
        "steps": steps,
        "us": statistics.median(times),
        "result": tally.as_list(steps),
    }))


if __name__ == "__main__":
    main()
