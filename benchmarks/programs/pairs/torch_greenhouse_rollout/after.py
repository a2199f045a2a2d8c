"""Roll out a stochastic climate-control policy over a fleet of simulated greenhouses.

Collects the returns and the log-probabilities that a policy-gradient trainer uses.
"""
import json
import time

import torch
import torch.nn as nn
from torch.distributions import Independent, Normal

FLEET = 40960
STATE, ACTION, WEATHER = 6, 4, 3
HIDDEN = 512
HORIZON = 24                       # quarter-hour ticks of six hours
WARMUP, BLOCKS, PER_BLOCK = 5, 6, 5


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(STATE + WEATHER + 2, HIDDEN), nn.SiLU(),
            nn.Linear(HIDDEN, HIDDEN), nn.SiLU(),
            nn.Linear(HIDDEN, HIDDEN), nn.SiLU())
        self.mean = nn.Linear(HIDDEN, ACTION)
        self.log_std = nn.Parameter(torch.full((ACTION,), -1.2))

    def forward(self, obs):
        mean = self.mean(self.trunk(obs)).tanh()
        return Independent(Normal(mean, self.log_std.exp().expand_as(mean), validate_args=False),
                           1, validate_args=False)


class Greenhouse:
    """Lumped energy, vapour and CO2 balances; columns of the state are
    air temperature, slab temperature, vapour, CO2, leaf area, set-point error."""

    def __init__(self, fleet, dev, seed):
        g = torch.Generator(device=dev).manual_seed(seed)
        base = torch.tensor([18.0, 17.0, 1.1, 0.7, 2.0, 0.0], device=dev)
        self.init = base + 0.1 * torch.randn(fleet, STATE, device=dev, generator=g)
        self.loss_k = 0.8 + 0.4 * torch.rand(fleet, device=dev, generator=g)
        ticks = torch.arange(HORIZON, device=dev)
        self.sun = 300 * torch.sin(3.1416 * (ticks + 4) / 32).clamp(min=0)
        self.outside = 6 + 4 * torch.sin(3.1416 * ticks / 32)
        self.clock = torch.stack([torch.sin(ticks / 15.3), torch.cos(ticks / 15.3)], dim=1)

    def observe(self, s, tick):
        n = s.shape[0]
        scaled = 0.05 * s
        weather = torch.stack([self.sun[tick] / 300, self.outside[tick] / 20,
                               self.sun[tick] * self.outside[tick] / 3000])
        return torch.cat([scaled, weather.expand(n, WEATHER), self.clock[tick].expand(n, 2)], dim=1)

    def advance(self, s, a, tick, dt=0.25):
        air, slab, vap, co2, leaf, _ = s.unbind(1)
        heat, vent, mist, dose = torch.sigmoid(a).unbind(1)
        light = 0.7 * self.sun[tick]
        leak = self.loss_k * (0.3 + 2.0 * vent)
        transp = 0.002 * leaf * light / (1 + vap)
        photo = leaf * light * co2 / (400 * (co2 + 0.6))
        air2 = air + dt * (0.03 * light + 9 * heat + 0.5 * (slab - air)
                           - leak * (air - self.outside[tick]) - 1.5 * mist)
        slab2 = slab + dt * 0.2 * (air - slab)
        vap2 = (vap + dt * (transp + 0.8 * mist - leak * (vap - 0.6))).clamp(0.1, 4.0)
        co22 = (co2 + dt * (1.2 * dose - 0.2 * photo - leak * (co2 - 0.42))).clamp(0.2, 2.0)
        leaf2 = leaf + dt * 0.01 * photo
        err = air2 - 20.0
        reward = photo - 0.02 * err.square() - 0.15 * heat - 0.1 * dose - 0.03 * mist
        return torch.stack([air2, slab2, vap2, co22, leaf2, err], dim=1), reward


@torch.no_grad()
def rollout(policy, env, gamma=0.98):
    s = env.init
    returns = torch.zeros(s.shape[0], device=s.device)
    logp = torch.zeros_like(returns)
    discount = 1.0
    for tick in range(HORIZON):
        dist = policy(env.observe(s, tick))
        action = dist.rsample()
        logp += dist.log_prob(action)
        s, reward = env.advance(s, action, tick)
        returns += discount * reward
        discount *= gamma
    advantage = (returns - returns.mean()) / (returns.std() + 1e-6)
    return returns.mean(), (advantage * logp).mean()


def main():
    torch.manual_seed(21)
    torch.set_float32_matmul_precision("high")
    dev = torch.device("cuda")
    policy = Policy().to(dev)
    env = Greenhouse(FLEET, dev, seed=4)
    sums = torch.zeros(2, device=dev)

    def step():
        mean_return, surrogate = rollout(policy, env)
        sums.add_(torch.stack([mean_return, surrogate]))

    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t0) / PER_BLOCK)
    n = WARMUP + BLOCKS * PER_BLOCK
    us = 1e6 * sorted(times)[len(times) // 2]
    print(json.dumps({"program": "torch_greenhouse_rollout", "steps": n, "us": round(us, 1),
                      "result": [float(v) / n for v in sums]}))


if __name__ == "__main__":
    main()
