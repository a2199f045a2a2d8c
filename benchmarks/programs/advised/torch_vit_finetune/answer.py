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


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        parts = [nn.Linear(DIM, DIM) for _ in range(3)]  # q, k, v as one product
        self.qkv_weight = nn.Parameter(torch.cat([f.weight.detach() for f in parts]))
        self.qkv_bias = nn.Parameter(torch.cat([f.bias.detach() for f in parts]))
        self.o = nn.Linear(DIM, DIM)
        self.fc1, self.fc2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        h = self.n1(x)
        q, k, v = (
            f.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for f in F.linear(h, self.qkv_weight, self.qkv_bias).chunk(3, dim=-1)
        )
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
        x = self.patch(images).flatten(2).transpose(1, 2) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def main():
    torch.manual_seed(3)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = ViT().to(DEVICE)
    opt = torch.optim.AdamW(
        model.parameters(),
        lr=LR,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.01,
        fused=True,
        capturable=True,
    )
    images = torch.randn(4, BATCH, 3, IMAGE, IMAGE).to(DEVICE)
    labels = torch.randint(0, CLASSES, (4, BATCH)).to(DEVICE)
    count = 0

    def plain_loss(x, y):
        return F.cross_entropy(model(x), y)

    image, label = images[0].clone(), labels[0].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    loss_of = torch.compile(plain_loss)
    with torch.cuda.stream(side):
        try:  # compiles forward and backward; changes no parameter
            loss_of(image, label).backward()
        except Exception as error:
            print("not compiled:", error)
            loss_of = plain_loss
        opt.zero_grad()
    torch.cuda.current_stream().wait_stream(side)

    def update():
        loss = loss_of(image, label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    graph, graph_loss = None, None

    def train_step():
        nonlocal count
        i = count % 4
        count += 1
        image.copy_(images[i])
        label.copy_(labels[i])
        if graph is not None:
            graph.replay()
            return graph_loss
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            loss = update()
        torch.cuda.current_stream().wait_stream(side)
        return loss

    # The first warm-up steps run as they are, then one is captured (which runs nothing).
    losses = [train_step().clone() for _ in range(3)]
    opt.zero_grad()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=side):
        graph_loss = update()
    graph = captured
    losses += [train_step().clone() for _ in range(WARMUP - 3)]
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
