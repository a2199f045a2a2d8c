"""Policy-gradient training on a vectorised cart-pole that lives on the GPU."""

import json
import statistics
import time

import torch
import torch.nn as nn

DEVICE = "cuda"
ENVS = 2048
HORIZON = 64
HIDDEN = 64
GAMMA = 0.99
WARMUP = 3
BLOCKS = 8
STEPS_PER_BLOCK = 4
DT = 0.02


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()
        )
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, obs):
        return self.head(self.body(obs)).squeeze(-1)


def physics(state, action):
    """One step of the cart and pole; action is 0 or 1."""
    x, v, a, w = state.unbind(-1)
    force = (action * 2 - 1) * 10.0
    sin, cos = torch.sin(a), torch.cos(a)
    tmp = (force + 0.05 * w * w * sin) / 1.1
    acc_a = (9.8 * sin - cos * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
    acc_x = tmp - 0.05 * acc_a * cos / 1.1
    return torch.stack([x + DT * v, v + DT * acc_x, a + DT * w, w + DT * acc_a], -1)


def env_step(policy, state, noise, fresh):
    logit = policy(state)
    action = (noise < torch.sigmoid(logit)).float()
    new = physics(state, action)
    done = (new[:, 0].abs() > 2.4) | (new[:, 2].abs() > 0.21)
    reward = (~done).float()
    new = torch.where(done.unsqueeze(1), fresh, new)
    return new, action, reward, done


def main():
    torch.manual_seed(8)
    policy = Policy().to(DEVICE)
    opt = torch.optim.Adam(policy.parameters(), lr=3e-3, fused=True)
    noise = torch.rand(HORIZON, ENVS).to(DEVICE)
    fresh = (torch.rand(HORIZON, ENVS, 4) * 0.1 - 0.05).to(DEVICE)
    state = (torch.rand(ENVS, 4) * 0.1 - 0.05).to(DEVICE)
    obs = torch.zeros(HORIZON, ENVS, 4, device=DEVICE)
    actions = torch.zeros(HORIZON, ENVS, device=DEVICE)
    rewards = torch.zeros(HORIZON, ENVS, device=DEVICE)
    alive = torch.zeros(HORIZON, ENVS, device=DEVICE)
    count = 0

    @torch.no_grad()
    def rollout():
        s = state.clone()
        for t in range(HORIZON):
            obs[t] = s
            s, actions[t], rewards[t], done = env_step(policy, s, noise[t], fresh[t])
            alive[t] = 1.0 - done.float()
        state.copy_(s)

    @torch.no_grad()
    def returns():
        out = torch.empty_like(rewards)
        running = torch.zeros(ENVS, device=DEVICE)
        for t in reversed(range(HORIZON)):
            running = rewards[t] + GAMMA * running * alive[t]
            out[t] = running
        return out

    def capture():
        """Rollout and returns as one CUDA graph; policy's weights change in place."""
        kept = state.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            rollout()
            returns()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            rollout()
            gain = returns()
        state.copy_(kept)
        return graph, gain

    graph, raw_gain = capture()

    def train_step():
        nonlocal count
        count += 1
        graph.replay()
        gain = raw_gain
        gain = (gain - gain.mean()) / (gain.std() + 1e-6)
        logp = -nn.functional.binary_cross_entropy_with_logits(
            policy(obs), actions, reduction="none"
        )
        loss = -(logp * gain).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss

    train_step()
    first = [rewards.mean().item(), obs.square().mean().item()]
    for _ in range(WARMUP):
        train_step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    print(f"mean reward {rewards.mean().item():.4f}")
    print(f"{ENVS * HORIZON / statistics.median(times) / 1e6:.2f} M env steps/s")
    out = {
        "program": "torch_rl_cartpole",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [*first, rewards.mean().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
