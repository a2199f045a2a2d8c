"""Fine-tune a narrow and deep vision transformer on synthetic images."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
IMAGE = 64
PATCH = 8
DIM = 192
HEADS = 3
DEPTH = 12
CLASSES = 100
BATCH = 64
LR = 1e-4
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 8
EAGER = 3  # steps before the graph is recorded; fewer than WARMUP


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.o = nn.Linear(DIM, DIM)
        self.fc1, self.fc2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def fuse(self):
        """Queries, keys and values by one product."""
        parts = (self.q, self.k, self.v)
        self.qkv_weight = nn.Parameter(torch.cat([f.weight.detach() for f in parts]))
        self.qkv_bias = nn.Parameter(torch.cat([f.bias.detach() for f in parts]))
        del self.q, self.k, self.v

    def forward(self, x):
        h = F.linear(self.n1(x), self.qkv_weight, self.qkv_bias)
        q, k, v = h.unflatten(-1, (3, HEADS, DIM // HEADS)).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.o(y)
        return x + self.fc2(F.gelu(self.fc1(self.n2(x))))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.pos = nn.Parameter(torch.randn(1, (IMAGE // PATCH) ** 2, DIM) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, images):
        side = IMAGE // PATCH
        x = images.view(-1, 3, side, PATCH, side, PATCH).permute(0, 2, 4, 1, 3, 5)
        x = x.reshape(-1, side * side, 3 * PATCH * PATCH)
        x = F.linear(x, self.patch.weight.flatten(1), self.patch.bias) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def main():
    torch.manual_seed(3)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = ViT()
    for block in model.blocks:
        block.fuse()
    model = model.to(DEVICE)
    opt = torch.optim.AdamW(
        model.parameters(), lr=LR, eps=1e-8, weight_decay=0.01, fused=True, capturable=True
    )
    images = torch.randn(4, BATCH, 3, IMAGE, IMAGE).to(DEVICE)
    labels = torch.randint(0, CLASSES, (4, BATCH)).to(DEVICE)
    x, y = images[0].clone(), labels[0].clone()
    count = 0
    graph, graph_loss = None, None
    side = torch.cuda.Stream()

    def forward(x, y):
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            return F.cross_entropy(model(x), y)

    side.wait_stream(torch.cuda.current_stream())
    try:
        loss_of = torch.compile(forward, dynamic=False)
        with torch.cuda.stream(side):
            loss_of(x, y).backward()
    except Exception as e:
        print("not compiled:", type(e).__name__)
        loss_of = forward
    opt.zero_grad(set_to_none=True)
    torch.cuda.synchronize()

    def work():
        opt.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        opt.step()
        return loss.detach()

    def train_step():
        nonlocal count, graph, graph_loss
        i = count % 4
        count += 1
        x.copy_(images[i])
        y.copy_(labels[i])
        if count <= EAGER:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                loss = work()
            torch.cuda.current_stream().wait_stream(side)
            return loss
        if graph is None:
            torch.cuda.synchronize()
            opt.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                graph_loss = work()
        graph.replay()
        return graph_loss

    losses = [train_step().clone() for _ in range(WARMUP)]
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    losses = [x.item() for x in losses]
    print("first losses:", " ".join(f"{x:.4f}" for x in losses))
    print(f"{BATCH / statistics.median(times):.0f} images/s")
    out = {
        "program": "torch_vit_finetune",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [losses[0], losses[3], losses[7]],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
