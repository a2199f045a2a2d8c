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
DT = 0.02
ROLLOUT_BLOCK = 16
SAMPLE_BLOCK = 64
PARTS = 256  # programs that each sum the gradient of a share of the samples
# Where the flat gradient holds: w1, b1, w2, b2, w3, b3, loss.
B1 = 4 * HIDDEN
W2 = B1 + HIDDEN
B2 = W2 + HIDDEN * HIDDEN
W3 = B2 + HIDDEN
B3 = W3 + HIDDEN
FLAT = B3 + 64


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
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit
def first_layer(x, v, a, w, w1, b1, HIDDEN: tl.constexpr):
    """tanh of the first layer of a block of observations."""
    unit = tl.arange(0, HIDDEN)
    z = tl.load(b1 + unit)[None, :] + x[:, None] * tl.load(w1 + unit * 4)[None, :]
    z += v[:, None] * tl.load(w1 + unit * 4 + 1)[None, :]
    z += a[:, None] * tl.load(w1 + unit * 4 + 2)[None, :]
    z += w[:, None] * tl.load(w1 + unit * 4 + 3)[None, :]
    return tanh(z)


@triton.jit
def rollout_kernel(
    state,
    noise,
    fresh,
    obs,
    actions,
    rewards,
    gains,
    w1,
    b1,
    w2,
    b2,
    w3,
    b3,
    ENVS: tl.constexpr,
    HORIZON: tl.constexpr,
    HIDDEN: tl.constexpr,
    GAMMA: tl.constexpr,
    DT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All steps of a block of environments, then their discounted returns."""
    env = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    unit = tl.arange(0, HIDDEN)
    second = tl.load(w2 + unit[None, :] * HIDDEN + unit[:, None])
    bias = tl.load(b2 + unit)
    head = tl.load(w3 + unit)
    head_bias = tl.load(b3)
    x = tl.load(state + env * 4)
    v = tl.load(state + env * 4 + 1)
    a = tl.load(state + env * 4 + 2)
    w = tl.load(state + env * 4 + 3)
    lived = tl.zeros([BLOCK], dtype=tl.int64)
    for t in range(HORIZON):
        row = t * ENVS + env
        draw = tl.load(noise + row)
        fresh_x = tl.load(fresh + row * 4)
        fresh_v = tl.load(fresh + row * 4 + 1)
        fresh_a = tl.load(fresh + row * 4 + 2)
        fresh_w = tl.load(fresh + row * 4 + 3)
        tl.store(obs + row * 4, x)
        tl.store(obs + row * 4 + 1, v)
        tl.store(obs + row * 4 + 2, a)
        tl.store(obs + row * 4 + 3, w)
        h = first_layer(x, v, a, w, w1, b1, HIDDEN)
        h = tanh(tl.dot(h, second, input_precision="tf32x3") + bias[None, :])
        logit = tl.sum(h * head[None, :], axis=1) + head_bias
        action = (draw < tl.sigmoid(logit)).to(tl.float32)
        force = (action * 2.0 - 1.0) * 10.0
        sin = tl.sin(a)
        cos = tl.cos(a)
        tmp = (force + 0.05 * w * w * sin) / 1.1
        acc_a = (9.8 * sin - cos * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        acc_x = tmp - 0.05 * acc_a * cos / 1.1
        new_x = x + DT * v
        new_v = v + DT * acc_x
        new_a = a + DT * w
        new_w = w + DT * acc_a
        done = (tl.abs(new_x) > 2.4) | (tl.abs(new_a) > 0.21)
        x = tl.where(done, fresh_x, new_x)
        v = tl.where(done, fresh_v, new_v)
        a = tl.where(done, fresh_a, new_a)
        w = tl.where(done, fresh_w, new_w)
        reward = tl.where(done, 0.0, 1.0)
        lived = lived | (tl.where(done, 0, 1).to(tl.int64) << t)
        tl.store(actions + row, action)
        tl.store(rewards + row, reward)
    tl.store(state + env * 4, x)
    tl.store(state + env * 4 + 1, v)
    tl.store(state + env * 4 + 2, a)
    tl.store(state + env * 4 + 3, w)
    # The reward is 1 where the pole stays up, so it says too which steps went on.
    running = tl.zeros([BLOCK], dtype=tl.float32)
    for k in range(HORIZON):
        t = HORIZON - 1 - k
        up = ((lived >> t) & 1).to(tl.float32)
        running = up + GAMMA * running * up
        tl.store(gains + t * ENVS + env, running)


@triton.jit
def gradient_kernel(
    obs,
    actions,
    gains,
    gain_mean,
    gain_std,
    parts,
    w1,
    b1,
    w2,
    b2,
    w3,
    b3,
    SAMPLES: tl.constexpr,
    ROUNDS: tl.constexpr,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    B1: tl.constexpr,
    W2: tl.constexpr,
    B2: tl.constexpr,
    W3: tl.constexpr,
    B3: tl.constexpr,
    FLAT: tl.constexpr,
):
    """Loss and its gradient over ROUNDS blocks of samples, written to a row of parts."""
    unit = tl.arange(0, HIDDEN)
    matrix = unit[:, None] * HIDDEN + unit[None, :]
    second = tl.load(w2 + matrix)
    second_t = tl.load(w2 + unit[None, :] * HIDDEN + unit[:, None])
    bias = tl.load(b2 + unit)
    head = tl.load(w3 + unit)
    head_bias = tl.load(b3)
    mean = tl.load(gain_mean)
    scale = 1.0 / (tl.load(gain_std) + 1e-6)
    d_x = tl.zeros([HIDDEN], dtype=tl.float32)
    d_v = tl.zeros([HIDDEN], dtype=tl.float32)
    d_a = tl.zeros([HIDDEN], dtype=tl.float32)
    d_w = tl.zeros([HIDDEN], dtype=tl.float32)
    d_b1 = tl.zeros([HIDDEN], dtype=tl.float32)
    d_b2 = tl.zeros([HIDDEN], dtype=tl.float32)
    d_w3 = tl.zeros([HIDDEN], dtype=tl.float32)
    d_w2 = tl.zeros([HIDDEN, HIDDEN], dtype=tl.float32)
    d_b3 = tl.zeros([BLOCK], dtype=tl.float32)
    loss = tl.zeros([BLOCK], dtype=tl.float32)
    for k in range(ROUNDS):
        sample = (tl.program_id(0) * ROUNDS + k) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(obs + sample * 4)
        v = tl.load(obs + sample * 4 + 1)
        a = tl.load(obs + sample * 4 + 2)
        w = tl.load(obs + sample * 4 + 3)
        action = tl.load(actions + sample)
        gain = (tl.load(gains + sample) - mean) * scale
        h1 = first_layer(x, v, a, w, w1, b1, HIDDEN)
        h2 = tanh(tl.dot(h1, second_t, input_precision="tf32x3") + bias[None, :])
        logit = tl.sum(h2 * head[None, :], axis=1) + head_bias
        cross = tl.maximum(logit, 0.0) - logit * action + tl.log(1.0 + tl.exp(-tl.abs(logit)))
        loss += cross * gain * (1.0 / SAMPLES)
        d_logit = gain * (tl.sigmoid(logit) - action) * (1.0 / SAMPLES)
        d_b3 += d_logit
        d_w3 += tl.sum(d_logit[:, None] * h2, axis=0)
        d_z2 = d_logit[:, None] * head[None, :] * (1.0 - h2 * h2)
        d_b2 += tl.sum(d_z2, axis=0)
        d_w2 = tl.dot(tl.trans(d_z2), h1, d_w2, input_precision="tf32x3")
        d_z1 = tl.dot(d_z2, second, input_precision="tf32x3") * (1.0 - h1 * h1)
        d_b1 += tl.sum(d_z1, axis=0)
        d_x += tl.sum(d_z1 * x[:, None], axis=0)
        d_v += tl.sum(d_z1 * v[:, None], axis=0)
        d_a += tl.sum(d_z1 * a[:, None], axis=0)
        d_w += tl.sum(d_z1 * w[:, None], axis=0)
    part = parts + tl.program_id(0) * FLAT
    tl.store(part + unit * 4, d_x)
    tl.store(part + unit * 4 + 1, d_v)
    tl.store(part + unit * 4 + 2, d_a)
    tl.store(part + unit * 4 + 3, d_w)
    tl.store(part + B1 + unit, d_b1)
    tl.store(part + W2 + matrix, d_w2)
    tl.store(part + B2 + unit, d_b2)
    tl.store(part + W3 + unit, d_w3)
    tl.store(part + B3, tl.sum(d_b3, axis=0))
    tl.store(part + B3 + 1, tl.sum(loss, axis=0))


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
    gains = torch.zeros(HORIZON, ENVS, device=DEVICE)
    parts = torch.zeros(PARTS, FLAT, device=DEVICE)
    flat = torch.zeros(FLAT, device=DEVICE)
    layers = (policy.body[0], policy.body[2], policy.head)
    weights = [p for layer in layers for p in (layer.weight, layer.bias)]
    for p, offset in zip(weights, (0, B1, W2, B2, W3, B3), strict=True):
        p.grad = flat[offset : offset + p.numel()].view_as(p)
    weights = [p.detach() for p in weights]
    graph = torch.cuda.CUDAGraph()
    count = 0

    @torch.no_grad()
    def compute():
        rollout_kernel[(ENVS // ROLLOUT_BLOCK,)](
            state,
            noise,
            fresh,
            obs,
            actions,
            rewards,
            gains,
            *weights,
            ENVS,
            HORIZON,
            HIDDEN,
            GAMMA,
            DT,
            ROLLOUT_BLOCK,
            num_warps=4,
            num_stages=1,
        )
        std, mean = torch.std_mean(gains)
        gradient_kernel[(PARTS,)](
            obs,
            actions,
            gains,
            mean,
            std,
            parts,
            *weights,
            HORIZON * ENVS,
            HORIZON * ENVS // (PARTS * SAMPLE_BLOCK),
            HIDDEN,
            SAMPLE_BLOCK,
            B1,
            W2,
            B2,
            W3,
            B3,
            FLAT,
            num_warps=4,
            num_stages=1,
        )
        torch.sum(parts, 0, out=flat)
        opt.step()

    def train_step():
        nonlocal count
        count += 1
        if count == 1:
            compute()
        else:
            graph.replay()
        return flat[B3 + 1]

    train_step()
    first = [rewards.mean().item(), obs.square().mean().item()]
    with torch.cuda.graph(graph):  # records a step without running it
        compute()
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
