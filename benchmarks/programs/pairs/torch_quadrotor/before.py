"""Collects policy roll-outs for a batch of simulated quadrotors on the GPU (PPO data side)."""
import json
import statistics
import time

import torch
import torch.nn as nn
from torch.distributions import Normal

DRONES = 32768
HORIZON = 24
DT = 0.02
ARENA = 4.0
MAX_AGE = 150
WARMUP = 6
BLOCK = 4
BLOCKS = 8


def mlp(inputs, outputs, width=256):
    return nn.Sequential(nn.Linear(inputs, width), nn.ELU(),
                         nn.Linear(width, width), nn.ELU(),
                         nn.Linear(width, outputs))


class Agent(nn.Module):
    def __init__(self, observation_size, action_size):
        super().__init__()
        self.actor = mlp(observation_size, action_size)
        self.critic = mlp(observation_size, 1)
        self.log_std = nn.Parameter(torch.full((action_size,), -0.7))

    def forward(self, observation):
        mean = self.actor(observation)
        spread = self.log_std.exp().expand_as(mean)
        return Normal(mean, spread), self.critic(observation).squeeze(-1)


class Hover:
    """Point-mass drones with small-angle attitude; columns: position, velocity, angles, rates."""

    def __init__(self, count, device):
        generator = torch.Generator(device=device).manual_seed(21)
        self.spawn = torch.randn(count, 12, device=device, generator=generator) * 0.3
        self.spawn[:, :3] *= 4.0
        self.state = self.spawn.clone()
        self.age = torch.randint(0, MAX_AGE, (count,), device=device, generator=generator)
        self.score = torch.zeros(count, device=device)
        self.finished = torch.zeros((), device=device)
        self.gravity = torch.tensor([0.0, 0.0, -9.81], device=device)

    def observe(self):
        return torch.cat([self.state, self.state[:, :3].square()], dim=1)

    def advance(self, action):
        position, velocity, angles, rates = self.state.split(3, dim=1)
        command = torch.tanh(action)
        lift = 9.81 + 4.0 * command[:, :1]
        push = torch.cat([angles[:, 1:2], -angles[:, :1], torch.ones_like(lift)], dim=1) * lift
        velocity = velocity + DT * (push + self.gravity - 0.25 * velocity)
        position = position + DT * velocity
        rates = rates + DT * (12.0 * command[:, 1:] - 2.0 * rates)
        angles = (angles + DT * rates).clamp(-0.6, 0.6)
        self.state = torch.cat([position, velocity, angles, rates], dim=1)

        distance = position.norm(dim=1)
        reward = 1.0 - 0.4 * distance - 0.02 * command.square().sum(dim=1)
        self.score = self.score + reward
        self.age = self.age + 1
        done = (distance > ARENA) | (self.age >= MAX_AGE)
        self.restart(done)
        return reward, done

    def restart(self, done):
        self.finished += self.score[done].sum()
        self.state[done] = self.spawn[done]
        self.score[done] = 0.0
        self.age[done] = 0


class RolloutBuffer:
    def __init__(self, horizon, count, observation_size, action_size, device):
        self.observation = torch.empty(horizon, count, observation_size, device=device)
        self.action = torch.empty(horizon, count, action_size, device=device)
        self.log_prob = torch.empty(horizon, count, device=device)
        self.value = torch.empty(horizon, count, device=device)
        self.reward = torch.empty(horizon, count, device=device)
        self.done = torch.empty(horizon, count, dtype=torch.bool, device=device)


@torch.no_grad()
def collect(agent, world, buffer):
    for tick in range(HORIZON):
        observation = world.observe()
        policy, value = agent(observation)
        action = policy.sample()
        buffer.observation[tick] = observation
        buffer.action[tick] = action
        buffer.log_prob[tick] = policy.log_prob(action).sum(dim=-1)
        buffer.value[tick] = value
        buffer.reward[tick], buffer.done[tick] = world.advance(action)


def main():
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    agent = Agent(15, 4).to(device)
    world = Hover(DRONES, device)
    buffer = RolloutBuffer(HORIZON, DRONES, 15, 4, device)

    for _ in range(WARMUP):
        collect(agent, world, buffer)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            collect(agent, world, buffer)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK)

    steps = WARMUP + BLOCK * BLOCKS
    result = [buffer.reward.mean().item(), buffer.log_prob.mean().item(),
              world.finished.item() / (DRONES * steps)]
    print(json.dumps({"program": "torch_quadrotor", "steps": steps,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
