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
ENV_TILE = 16
ROW_TILE = 64
PROGRAMS = 256
# one program's gradients: body[2], body[0], their biases, head weight and bias, loss
PART = 4608


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
def chain(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_b + decay_b * value_a


@triton.jit
def rollout_kernel(
    w1_ptr, b1_ptr, w2_ptr, b2_ptr, w3_ptr, b3_ptr, state, noise, fresh,
    obs, actions, rewards,
    ENVS: tl.constexpr, HORIZON: tl.constexpr, HIDDEN: tl.constexpr,
    DT: tl.constexpr, TILE: tl.constexpr,
):
    """All steps of some environments: policy, action, physics and reset.

    A step is alive exactly where its reward is 1, so rewards serve for both.
    """
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    h = tl.arange(0, HIDDEN)
    w1x = tl.load(w1_ptr + h * 4)
    w1v = tl.load(w1_ptr + h * 4 + 1)
    w1a = tl.load(w1_ptr + h * 4 + 2)
    w1w = tl.load(w1_ptr + h * 4 + 3)
    b1 = tl.load(b1_ptr + h)
    b2 = tl.load(b2_ptr + h)
    w3 = tl.load(w3_ptr + h)
    b3 = tl.load(b3_ptr)
    w2t = tl.load(w2_ptr + h[None, :] * HIDDEN + h[:, None])
    x = tl.load(state + e * 4)
    v = tl.load(state + e * 4 + 1)
    a = tl.load(state + e * 4 + 2)
    w = tl.load(state + e * 4 + 3)
    for t in range(HORIZON):
        at = t * ENVS + e
        u = tl.load(noise + at)
        fx = tl.load(fresh + at * 4)
        fv = tl.load(fresh + at * 4 + 1)
        fa = tl.load(fresh + at * 4 + 2)
        fw = tl.load(fresh + at * 4 + 3)
        tl.store(obs + at * 4, x)
        tl.store(obs + at * 4 + 1, v)
        tl.store(obs + at * 4 + 2, a)
        tl.store(obs + at * 4 + 3, w)
        h1 = tanh(
            x[:, None] * w1x[None, :] + v[:, None] * w1v[None, :]
            + a[:, None] * w1a[None, :] + w[:, None] * w1w[None, :] + b1[None, :]
        )
        h2 = tanh(tl.dot(h1, w2t, input_precision="tf32x3") + b2[None, :])
        logit = tl.sum(h2 * w3[None, :], axis=1) + b3
        action = tl.where(u < tl.sigmoid(logit), 1.0, 0.0)
        tl.store(actions + at, action)

        force = (action * 2.0 - 1.0) * 10.0
        sin = tl.sin(a)
        cos = tl.cos(a)
        tmp = (force + 0.05 * w * w * sin) / 1.1
        acc_a = (9.8 * sin - cos * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        acc_x = tmp - 0.05 * acc_a * cos / 1.1
        nx = x + DT * v
        nv = v + DT * acc_x
        na = a + DT * w
        nw = w + DT * acc_a
        done = (tl.abs(nx) > 2.4) | (tl.abs(na) > 0.21)
        tl.store(rewards + at, tl.where(done, 0.0, 1.0))
        x = tl.where(done, fx, nx)
        v = tl.where(done, fv, nv)
        a = tl.where(done, fa, na)
        w = tl.where(done, fw, nw)
    tl.store(state + e * 4, x)
    tl.store(state + e * 4 + 1, v)
    tl.store(state + e * 4 + 2, a)
    tl.store(state + e * 4 + 3, w)


@triton.jit
def returns_kernel(
    rewards, gain, GAMMA: tl.constexpr,
    ENVS: tl.constexpr, HORIZON: tl.constexpr, TILE: tl.constexpr,
):
    e = tl.program_id(0) * TILE + tl.arange(0, TILE)
    t = tl.arange(0, HORIZON)
    at = t[:, None] * ENVS + e[None, :]
    reward = tl.load(rewards + at)
    decay, value = tl.associative_scan((GAMMA * reward, reward), 0, chain, reverse=True)
    tl.store(gain + at, value)


@triton.jit
def gradient_kernel(
    w1_ptr, b1_ptr, w2_ptr, b2_ptr, w3_ptr, b3_ptr, obs, actions, gain, std_ptr, mean_ptr,
    parts, ROWS: tl.constexpr, TILES: tl.constexpr, HIDDEN: tl.constexpr,
    TILE: tl.constexpr, PART: tl.constexpr,
):
    """Policy forward, loss and backward for some rows; sums over the rows of a program."""
    pid = tl.program_id(0)
    h = tl.arange(0, HIDDEN)
    w10 = tl.load(w1_ptr + h * 4)
    w11 = tl.load(w1_ptr + h * 4 + 1)
    w12 = tl.load(w1_ptr + h * 4 + 2)
    w13 = tl.load(w1_ptr + h * 4 + 3)
    b1 = tl.load(b1_ptr + h)
    b2 = tl.load(b2_ptr + h)
    w3 = tl.load(w3_ptr + h)
    b3 = tl.load(b3_ptr)
    mean = tl.load(mean_ptr)
    inverse = 1.0 / (tl.load(std_ptr) + 1e-6)
    w2t = tl.load(w2_ptr + h[None, :] * HIDDEN + h[:, None])
    w2 = tl.load(w2_ptr + h[:, None] * HIDDEN + h[None, :])
    g_w2 = tl.zeros((HIDDEN, HIDDEN), tl.float32)
    g_w10 = tl.zeros((HIDDEN,), tl.float32)
    g_w11 = tl.zeros((HIDDEN,), tl.float32)
    g_w12 = tl.zeros((HIDDEN,), tl.float32)
    g_w13 = tl.zeros((HIDDEN,), tl.float32)
    g_b1 = tl.zeros((HIDDEN,), tl.float32)
    g_b2 = tl.zeros((HIDDEN,), tl.float32)
    g_w3 = tl.zeros((HIDDEN,), tl.float32)
    g_b3 = tl.zeros((TILE,), tl.float32)
    loss = tl.zeros((TILE,), tl.float32)
    for i in range(TILES):
        row = (pid * TILES + i) * TILE + tl.arange(0, TILE)
        o0 = tl.load(obs + row * 4)
        o1 = tl.load(obs + row * 4 + 1)
        o2 = tl.load(obs + row * 4 + 2)
        o3 = tl.load(obs + row * 4 + 3)
        action = tl.load(actions + row)
        weight = (tl.load(gain + row) - mean) * inverse
        h1 = tanh(
            o0[:, None] * w10[None, :] + o1[:, None] * w11[None, :]
            + o2[:, None] * w12[None, :] + o3[:, None] * w13[None, :] + b1[None, :]
        )
        h2 = tanh(tl.dot(h1, w2t, input_precision="tf32x3") + b2[None, :])
        logit = tl.sum(h2 * w3[None, :], axis=1) + b3
        bce = tl.maximum(logit, 0.0) - logit * action + tl.log(1.0 + tl.exp(-tl.abs(logit)))
        loss += bce * weight * (1.0 / ROWS)
        d = (tl.sigmoid(logit) - action) * weight * (1.0 / ROWS)
        g_b3 += d
        g_w3 += tl.sum(d[:, None] * h2, axis=0)
        d2 = d[:, None] * w3[None, :] * (1.0 - h2 * h2)
        g_b2 += tl.sum(d2, axis=0)
        g_w2 += tl.dot(tl.trans(d2), h1, input_precision="tf32x3")
        d1 = tl.dot(d2, w2, input_precision="tf32x3") * (1.0 - h1 * h1)
        g_b1 += tl.sum(d1, axis=0)
        g_w10 += tl.sum(d1 * o0[:, None], axis=0)
        g_w11 += tl.sum(d1 * o1[:, None], axis=0)
        g_w12 += tl.sum(d1 * o2[:, None], axis=0)
        g_w13 += tl.sum(d1 * o3[:, None], axis=0)
    out = parts + pid * PART
    tl.store(out + h[:, None] * HIDDEN + h[None, :], g_w2)
    out += HIDDEN * HIDDEN
    tl.store(out + h * 4, g_w10)
    tl.store(out + h * 4 + 1, g_w11)
    tl.store(out + h * 4 + 2, g_w12)
    tl.store(out + h * 4 + 3, g_w13)
    out += HIDDEN * 4
    tl.store(out + h, g_b1)
    tl.store(out + HIDDEN + h, g_b2)
    tl.store(out + 2 * HIDDEN + h, g_w3)
    tl.store(out + 3 * HIDDEN, tl.sum(g_b3, axis=0))
    tl.store(out + 3 * HIDDEN + 1, tl.sum(loss, axis=0))


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
    parts = torch.zeros(PROGRAMS, PART, device=DEVICE)
    total = torch.zeros(PART, device=DEVICE)
    rows = HORIZON * ENVS
    assert rows % (PROGRAMS * ROW_TILE) == 0 and ENVS % ENV_TILE == 0
    first_layer, second_layer, head = policy.body[0], policy.body[2], policy.head
    weights = [
        p.detach()
        for layer in (first_layer, second_layer, head)
        for p in (layer.weight, layer.bias)
    ]
    # The gradients are views of the summed parts, in the order the kernel writes them.
    offset = 0
    for p in (
        second_layer.weight, first_layer.weight, first_layer.bias,
        second_layer.bias, head.weight, head.bias,
    ):
        p.grad = total[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
    loss = total[offset]
    count = 0

    @torch.no_grad()
    def train_step():
        rollout_kernel[(ENVS // ENV_TILE,)](
            *weights, state, noise, fresh, obs, actions, rewards,
            ENVS, HORIZON, HIDDEN, DT, ENV_TILE, num_warps=4, num_stages=1,
        )
        returns_kernel[(ENVS // ENV_TILE,)](
            rewards, gain, GAMMA, ENVS, HORIZON, ENV_TILE, num_warps=4
        )
        std, mean = torch.std_mean(gain)
        gradient_kernel[(PROGRAMS,)](
            *weights, obs, actions, gain, std, mean, parts,
            rows, rows // (PROGRAMS * ROW_TILE), HIDDEN, ROW_TILE, PART,
            num_warps=8, num_stages=1,
        )
        torch.sum(parts, 0, out=total)
        opt.step()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        train_step()
    count += 1
    torch.cuda.synchronize()
    first = [rewards.mean().item(), obs.square().mean().item()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        train_step()

    def replay_step():
        nonlocal count
        count += 1
        graph.replay()

    for _ in range(WARMUP):
        replay_step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            replay_step()
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
