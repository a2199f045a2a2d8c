"""Short-range precipitation nowcasting: a small patch transformer trained with Lion."""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_weather_lion"
BATCH, FIELDS, GRID, PATCH = 32, 6, 128, 8
DIM, DEPTH, HEADS = 384, 14, 6
WARMUP, BLOCKS, PER_BLOCK = 8, 6, 6
EAGER = 3  # of the warm-up, before the step is captured


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, decoupled weight decay."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, wd = group["lr"], group["weight_decay"]
            b1, b2 = group["betas"]
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads = [p.grad for p in params]
            for p in params:
                if not self.state[p]:
                    self.state[p]["exp_avg"] = torch.zeros_like(p)
            avgs = [self.state[p]["exp_avg"] for p in params]
            torch._foreach_mul_(params, 1.0 - lr * wd)
            updates = torch._foreach_mul(avgs, b1)
            torch._foreach_add_(updates, grads, alpha=1.0 - b1)
            torch._foreach_sign_(updates)
            torch._foreach_add_(params, updates, alpha=-lr)
            torch._foreach_mul_(avgs, b2)
            torch._foreach_add_(avgs, grads, alpha=1.0 - b2)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Nowcaster(nn.Module):
    def __init__(self):
        super().__init__()
        tokens = (GRID // PATCH) ** 2
        self.embed = nn.Conv2d(FIELDS, DIM, PATCH, PATCH)
        self.pos = nn.Parameter(torch.zeros(1, tokens, DIM))
        self.blocks = nn.ModuleList(Block(DIM, HEADS) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, PATCH * PATCH)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_batches(count, device):
    gen = torch.Generator(device=device).manual_seed(11)
    batches = []
    for _ in range(count):
        fields = torch.randn(BATCH, FIELDS, GRID, GRID, generator=gen, device=device)
        rain = fields.mean(1, keepdim=True).abs() * 2.0
        target = F.unfold(rain, PATCH, stride=PATCH).transpose(1, 2).contiguous()
        batches.append((fields, target))
    return batches


def train_step(model, optimizer, fields, target):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        pred = model(fields)
    loss = F.smooth_l1_loss(pred.float(), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    torch.manual_seed(3)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    device = torch.device("cuda")
    model = Nowcaster().to(device)
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = Lion(
        [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}], lr=3e-5
    )
    batches = make_batches(4, device)

    fields, target = (torch.empty_like(each) for each in batches[0])

    def load(n):
        fields.copy_(batches[n % len(batches)][0])
        target.copy_(batches[n % len(batches)][1])

    done = 0
    first = None
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(EAGER):
            load(done)
            loss = train_step(model, optimizer, fields, target)
            first = loss if first is None else first
            done += 1
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        loss = train_step(model, optimizer, fields, target)
    for _ in range(EAGER, WARMUP):
        load(done)
        graph.replay()
        done += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            load(done)
            graph.replay()
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)
    times.sort()
    print(json.dumps({
        "program": NAME,
        "steps": done,
        "us": times[len(times) // 2],
        "result": [first.item(), loss.item()],
    }))


if __name__ == "__main__":
    main()
