"""Policy-gradient training on a vectorised cart-pole that lives on the GPU."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

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


def action_logit(policy, obs):
    """policy(obs) for a batch of states, written so that the thin layers fuse with what is near."""
    first, second, head = policy.body[0], policy.body[2], policy.head
    w = first.weight
    hidden = first.bias + obs[:, 0:1] * w[:, 0] + obs[:, 1:2] * w[:, 1]
    hidden = torch.tanh(hidden + obs[:, 2:3] * w[:, 2] + obs[:, 3:4] * w[:, 3])
    hidden = torch.tanh(second(hidden))
    return (hidden * head.weight[0]).sum(-1) + head.bias


@torch.compile(fullgraph=True, dynamic=False)
def env_step(policy, state, noise, fresh):
    logit = action_logit(policy, state)
    action = (noise < torch.sigmoid(logit)).float()
    new = physics(state, action)
    done = (new[:, 0].abs() > 2.4) | (new[:, 2].abs() > 0.21)
    reward = (~done).float()
    alive = 1.0 - done.float()
    new = torch.where(done.unsqueeze(1), fresh, new)
    return new, action, reward, alive


@torch.compile(fullgraph=True, dynamic=False)
def normed_returns(rewards, alive):
    """Discounted returns by doubling: log2(HORIZON) rounds instead of HORIZON."""
    out, factor = rewards, GAMMA * alive
    shift = 1
    while shift < HORIZON:
        out = out + factor * F.pad(out[shift:], (0, 0, 0, shift))
        factor = factor * F.pad(factor[shift:], (0, 0, 0, shift))
        shift *= 2
    return (out - out.mean()) / (out.std() + 1e-6)


@torch.compile(fullgraph=True, dynamic=False)
def policy_loss(policy, obs, actions, gain):
    logp = -F.binary_cross_entropy_with_logits(policy(obs), actions, reduction="none")
    return -(logp * gain).mean()


def main():
    torch.manual_seed(8)
    policy = Policy().to(DEVICE)
    opt = torch.optim.Adam(policy.parameters(), lr=3e-3, fused=True, capturable=True)
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
        s = state
        seen, taken, gained, living = [], [], [], []
        for t in range(HORIZON):
            seen.append(s)
            s, action, reward, live = env_step(policy, s, noise[t], fresh[t])
            taken.append(action)
            gained.append(reward)
            living.append(live)
        torch.stack(seen, out=obs)
        torch.stack(taken, out=actions)
        torch.stack(gained, out=rewards)
        torch.stack(living, out=alive)
        state.copy_(s)

    def whole_step():
        rollout()
        with torch.no_grad():
            gain = normed_returns(rewards, alive)
        opt.zero_grad(set_to_none=True)
        policy_loss(policy, obs, actions, gain).backward()
        opt.step()

    graph = None
    side = torch.cuda.Stream()

    def train_step():
        nonlocal count
        count += 1
        if graph is not None:
            graph.replay()
            return
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            whole_step()
        torch.cuda.current_stream().wait_stream(side)

    train_step()
    first = [rewards.mean().item(), obs.square().mean().item()]
    for _ in range(WARMUP - 1):
        train_step()
    # Capture runs nothing: the last warm-up step is the first replay.
    torch.cuda.synchronize()
    opt.zero_grad(set_to_none=True)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=side):
        whole_step()
    graph = captured
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
