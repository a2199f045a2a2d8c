"""Policy-gradient training on a vectorised cart-pole that lives on the GPU."""

import json
import statistics
import time

import torch
import torch.nn as nn
import triton
import triton.language as tl

DEVICE = "cuda"
ENVS = 2048
HORIZON = 64
HIDDEN = 64
GAMMA = 0.99
WARMUP = 3
BLOCKS = 8
STEPS_PER_BLOCK = 4


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()
        )
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, obs):
        return self.head(self.body(obs)).squeeze(-1)


@triton.jit
def tanh(x):
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))


@triton.jit
def rollout_kernel(
    w1, b1, w2, b2, w3, b3, noise, fresh, state, obs, actions, rewards,
    horizon, ENVS: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr,
):
    """All steps of BLOCK environments: policy, physics (DT = 0.02), reset of the fallen."""
    env = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    unit = tl.arange(0, HIDDEN)
    w1x = tl.load(w1 + unit * 4)[None, :]
    w1v = tl.load(w1 + unit * 4 + 1)[None, :]
    w1a = tl.load(w1 + unit * 4 + 2)[None, :]
    w1w = tl.load(w1 + unit * 4 + 3)[None, :]
    bias1 = tl.load(b1 + unit)[None, :]
    bias2 = tl.load(b2 + unit)[None, :]
    head = tl.load(w3 + unit)[None, :]
    bias3 = tl.load(b3)
    weights = tl.load(w2 + unit[:, None] + unit[None, :] * HIDDEN)  # transposed: in, out
    x = tl.load(state + env * 4)
    v = tl.load(state + env * 4 + 1)
    a = tl.load(state + env * 4 + 2)
    w = tl.load(state + env * 4 + 3)
    for t in range(horizon):
        at = t * ENVS + env
        draw = tl.load(noise + at)
        fx = tl.load(fresh + at * 4)
        fv = tl.load(fresh + at * 4 + 1)
        fa = tl.load(fresh + at * 4 + 2)
        fw = tl.load(fresh + at * 4 + 3)
        tl.store(obs + at * 4, x)
        tl.store(obs + at * 4 + 1, v)
        tl.store(obs + at * 4 + 2, a)
        tl.store(obs + at * 4 + 3, w)
        h = tanh(x[:, None] * w1x + v[:, None] * w1v + a[:, None] * w1a + w[:, None] * w1w + bias1)
        h = tanh(tl.dot(h, weights, input_precision="tf32x3") + bias2)
        logit = tl.sum(h * head, axis=1) + bias3
        action = tl.where(draw < 1.0 / (1.0 + tl.exp(-logit)), 1.0, 0.0)
        force = (action * 2 - 1) * 10.0
        sin = tl.sin(a)
        cos = tl.cos(a)
        tmp = (force + 0.05 * w * w * sin) / 1.1
        acc_a = (9.8 * sin - cos * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        acc_x = tmp - 0.05 * acc_a * cos / 1.1
        nx = x + 0.02 * v
        nv = v + 0.02 * acc_x
        na = a + 0.02 * w
        nw = w + 0.02 * acc_a
        done = (tl.abs(nx) > 2.4) | (tl.abs(na) > 0.21)
        tl.store(actions + at, action)
        tl.store(rewards + at, tl.where(done, 0.0, 1.0))
        x = tl.where(done, fx, nx)
        v = tl.where(done, fv, nv)
        a = tl.where(done, fa, na)
        w = tl.where(done, fw, nw)
    tl.store(state + env * 4, x)
    tl.store(state + env * 4 + 1, v)
    tl.store(state + env * 4 + 2, a)
    tl.store(state + env * 4 + 3, w)


@triton.jit
def returns_kernel(
    rewards, out, gamma, ENVS: tl.constexpr, HORIZON: tl.constexpr, BLOCK: tl.constexpr
):
    """Discounted sums from the end; an environment is alive exactly where its reward is 1."""
    env = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    running = tl.zeros([BLOCK], dtype=tl.float32)
    for back in tl.static_range(HORIZON):
        at = (HORIZON - 1 - back) * ENVS + env
        reward = tl.load(rewards + at)
        running = reward + gamma * running * reward
        tl.store(out + at, running)


def loss_of(policy, obs, actions, gain):
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    logp = -nn.functional.binary_cross_entropy_with_logits(
        policy(obs), actions, reduction="none"
    )
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
    gain = torch.zeros(HORIZON, ENVS, device=DEVICE)
    compiled_loss = torch.compile(loss_of)
    count = 0

    def work():
        first, second, head = policy.body[0], policy.body[2], policy.head
        rollout_kernel[(ENVS // 16,)](
            first.weight, first.bias, second.weight, second.bias, head.weight, head.bias,
            noise, fresh, state, obs, actions, rewards,
            HORIZON, ENVS=ENVS, HIDDEN=HIDDEN, BLOCK=16, num_warps=4,
        )
        returns_kernel[(ENVS // 32,)](
            rewards, gain, GAMMA, ENVS=ENVS, HORIZON=HORIZON, BLOCK=32, num_warps=1
        )
        loss = compiled_loss(policy, obs, actions, gain)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    # the first steps run as they are, later ones replay the same work as one CUDA graph
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
        first = [rewards.mean().item(), obs.square().mean().item()]
        for _ in range(WARMUP - 1):
            work()
        count += WARMUP
        opt.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()

    def train_step():
        nonlocal count
        count += 1
        graph.replay()

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
