"""Monte Carlo of a down-and-out Asian call under Heston dynamics (full truncation Euler).

One step moves all paths by a trading fortnight (eight booked days).  Fresh normals are
drawn on the GPU for every day; the state is log-spot, variance, running sum and the
knock-out weight.
"""
import json
import math
import statistics
import time

import torch

PATHS = 1 << 24
DAYS_PER_STEP = 8
WARMUP, BLOCKS, PER_BLOCK = 6, 8, 4

SPOT, STRIKE, BARRIER = 100.0, 101.0, 72.0
RATE, DIVIDEND = 0.024, 0.011
KAPPA, THETA, SIGMA, RHO, V0 = 2.1, 0.045, 0.38, -0.62, 0.05
DT = 1.0 / 252.0
SQRT_DT = math.sqrt(DT)
RHO_PERP = math.sqrt(1.0 - RHO * RHO)
LOG_BARRIER = math.log(BARRIER)


def survival(log_before, log_after, variance):
    """Probability that the Brownian bridge between two closes stays above the barrier."""
    up_before = (log_before - LOG_BARRIER).clamp(min=0.0)
    up_after = (log_after - LOG_BARRIER).clamp(min=0.0)
    exponent = -2.0 * up_before * up_after / (variance * DT + 1e-10)
    return 1.0 - torch.exp(exponent)


@torch.compile
def advance_day(log_spot, variance, running, alive, z_var, z_perp):
    """One day of the scheme; returns the new state."""
    v_plus = variance.clamp(min=0.0)
    vol = torch.sqrt(v_plus)
    z_spot = RHO * z_var + RHO_PERP * z_perp
    drift = (RATE - DIVIDEND - 0.5 * v_plus) * DT
    new_log = log_spot + drift + vol * SQRT_DT * z_spot
    new_var = variance + KAPPA * (THETA - v_plus) * DT + SIGMA * vol * SQRT_DT * z_var
    new_alive = alive * survival(log_spot, new_log, v_plus)
    new_running = running + torch.exp(new_log)
    return new_log, new_var, new_running, new_alive


class PathBook:
    def __init__(self, device, seed=2024):
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.normals = torch.empty(2, PATHS, device=device)
        self.log_spot = torch.full((PATHS,), math.log(SPOT), device=device)
        self.variance = torch.full((PATHS,), V0, device=device)
        self.running = torch.zeros(PATHS, device=device)
        self.alive = torch.ones(PATHS, device=device)
        self.days = 0

    def step(self):
        for _ in range(DAYS_PER_STEP):
            self.normals.normal_(generator=self.generator)
            self.log_spot, self.variance, self.running, self.alive = advance_day(
                self.log_spot, self.variance, self.running, self.alive,
                self.normals[0], self.normals[1])
            self.days += 1

    def value(self):
        average = self.running / self.days
        payoff = (average - STRIKE).clamp(min=0.0) * self.alive
        return math.exp(-RATE * self.days * DT) * payoff.double().mean().item()


def main():
    torch.set_grad_enabled(False)
    device = torch.device("cuda")
    book = PathBook(device)

    done = 0
    for _ in range(WARMUP):
        book.step()
        done += 1
    torch.cuda.synchronize()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            book.step()
            done += 1
        torch.cuda.synchronize()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    price = book.value()
    survivors = book.alive.double().mean().item()
    mean_variance = book.variance.double().mean().item()
    print(f"{book.days} days, price {price:.4f}, survival {survivors:.4f}")
    print(json.dumps({
        "program": "torch_asianbarrier",
        "steps": done,
        "us": statistics.median(per_step),
        "result": [price, survivors, mean_variance],
    }))


if __name__ == "__main__":
    main()
