"""Momentum-contrast pretraining of a birdsong encoder on log-mel patches."""
import copy
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_birdsong_moco"
BATCH = 256
MELS = 64
FRAMES = 96
EMBED = 256
BANK = 65536
TEMPERATURE = 0.1
MOMENTUM = 0.99
WARMUP = 6
EAGER = 3  # of these, before the step is captured
BLOCKS = 6
STEPS_PER_BLOCK = 5


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class SongEncoder(nn.Module):
    def __init__(self, embed):
        super().__init__()
        self.features = nn.Sequential(
            conv_block(1, 64), conv_block(64, 128), conv_block(128, 256), conv_block(256, 512),
        )
        self.head = nn.Linear(512, embed)

    def forward(self, mel):
        x = self.features(mel).mean(dim=(2, 3))
        return F.normalize(self.head(x).float(), dim=1)


class MoCo(nn.Module):
    def __init__(self, embed, bank):
        super().__init__()
        self.query = SongEncoder(embed)
        self.key = copy.deepcopy(self.query)
        for p in self.key.parameters():
            p.requires_grad_(False)
        self.register_buffer("bank", F.normalize(torch.randn(bank, embed), dim=1))
        # on the GPU, so that a captured step moves on
        self.register_buffer("rows", torch.arange(BATCH))

    @torch.no_grad()
    def update_key_encoder(self):
        keys = list(self.key.parameters())
        torch._foreach_lerp_(keys, list(self.query.parameters()), 1.0 - MOMENTUM)

    @torch.no_grad()
    def enqueue(self, keys):
        self.bank.index_copy_(0, self.rows, keys)
        self.rows.add_(keys.shape[0]).remainder_(self.bank.shape[0])

    def forward(self, view_a, view_b):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            q = self.query(view_a)
            with torch.no_grad():
                self.update_key_encoder()
                k = self.key(view_b)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            positive = (q * k).sum(dim=1, keepdim=True)
            negative = q @ self.bank.t()
        logits = torch.cat([positive, negative.float()], dim=1) / TEMPERATURE
        target = torch.zeros(q.shape[0], dtype=torch.long, device=q.device)
        loss = F.cross_entropy(logits, target)
        self.enqueue(k)
        return loss


def synthetic_mels(count, generator, device):
    """Chirps with random slopes over a noisy background."""
    t = torch.linspace(0, 1, FRAMES, device=device)
    f = torch.linspace(0, 1, MELS, device=device)
    start = torch.rand(count, 1, 1, generator=generator, device=device)
    slope = torch.rand(count, 1, 1, generator=generator, device=device) - 0.5
    ridge = (f.view(1, MELS, 1) - start - slope * t.view(1, 1, FRAMES)).pow(2)
    noise = torch.randn(count, MELS, FRAMES, generator=generator, device=device)
    return (torch.exp(-200.0 * ridge) + 0.2 * noise).unsqueeze(1)


def augment(mel, generator):
    gain = 0.8 + 0.4 * torch.rand(mel.shape[0], 1, 1, 1, generator=generator, device=mel.device)
    noise = torch.randn(mel.shape, generator=generator, device=mel.device)
    return (mel * gain + 0.1 * noise).contiguous(memory_format=torch.channels_last)


def train_step(model, optimizer, mels, generator):
    view_a = augment(mels, generator)
    view_b = augment(mels, generator)
    loss = model(view_a, view_b)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    device = torch.device("cuda")
    torch.manual_seed(3)
    torch.backends.cudnn.allow_tf32 = True
    generator = torch.Generator(device=device).manual_seed(8)
    model = MoCo(EMBED, BANK).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.query.parameters(), lr=0.02, momentum=0.9, fused=True)
    pool = [synthetic_mels(BATCH, generator, device) for _ in range(4)]

    losses = []
    mels = torch.empty_like(pool[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(EAGER):
            mels.copy_(pool[i % 4])
            losses.append(train_step(model, optimizer, mels, generator))
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=side):
        loss = train_step(model, optimizer, mels, generator)

    def step(i):
        mels.copy_(pool[i % 4])
        graph.replay()
        losses.append(loss.clone())

    for i in range(EAGER, WARMUP):
        step(i)
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(len(losses))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    values = torch.stack(losses).tolist()
    print(json.dumps({
        "program": NAME,
        "steps": len(losses),
        "us": statistics.median(times),
        "result": [values[0], sum(values[-10:]) / 10],
    }))


if __name__ == "__main__":
    main()
