"""Fits a light adapter on a frozen image-text model for herbarium sheets.

Both towers of the model stay frozen. The adapter turns the features of the
species descriptions into classifier weights; sheets arrive newly augmented.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_herbarium_adapter"
SPECIES = 800
DESCRIPTION_TOKENS = 32
VOCAB = 8192
SHEETS = 32
PATCHES = 196
PATCH_DIM = 768
WIDTH = 512
HEADS = 8
TEXT_LAYERS = 8
IMAGE_LAYERS = 6
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 5


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Tower(nn.Module):
    def __init__(self, embed, tokens, layers):
        super().__init__()
        self.embed = embed
        self.position = nn.Parameter(0.02 * torch.randn(tokens, WIDTH))
        self.layers = nn.Sequential(*[Layer(WIDTH, HEADS) for _ in range(layers)])
        self.norm = nn.LayerNorm(WIDTH)

    @torch.no_grad()
    def forward(self, x):
        x = self.layers(self.embed(x) + self.position)
        return F.normalize(self.norm(x.mean(dim=1)).float(), dim=-1)


class Adapter(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width // 4), nn.ReLU(), nn.Linear(width // 4, width))
        self.mix = nn.Parameter(torch.tensor(0.2))
        self.log_scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, text, image):
        weights = F.normalize(text + self.mix * self.net(text), dim=-1)
        return self.log_scale.exp() * image @ weights.t()


class HerbariumClassifier(nn.Module):
    def __init__(self, descriptions):
        super().__init__()
        self.text = Tower(nn.Embedding(VOCAB, WIDTH), DESCRIPTION_TOKENS, TEXT_LAYERS)
        self.image = Tower(nn.Linear(PATCH_DIM, WIDTH), PATCHES, IMAGE_LAYERS)
        self.text.to(descriptions.device, torch.bfloat16)
        self.image.to(descriptions.device, torch.bfloat16)
        self.adapter = Adapter(WIDTH).to(descriptions.device)
        self.descriptions = descriptions

    def forward(self, sheets):
        image = self.image(sheets)
        text = self.text(self.descriptions)
        return self.adapter(text, image)


def augment(sheets, generator):
    """Random brightness of each sheet and dropped patches."""
    gain = 0.9 + 0.2 * torch.rand(sheets.shape[0], 1, 1, generator=generator, device=sheets.device)
    keep = torch.rand(sheets.shape[:2], generator=generator, device=sheets.device) > 0.1
    return (sheets * gain * keep.unsqueeze(-1)).to(torch.bfloat16)


def train_step(model, optimizer, sheets, species, generator):
    logits = model(augment(sheets, generator))
    loss = F.cross_entropy(logits, species)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    device = torch.device("cuda")
    torch.manual_seed(17)
    torch.set_float32_matmul_precision("high")
    generator = torch.Generator(device=device).manual_seed(4)
    descriptions = torch.randint(VOCAB, (SPECIES, DESCRIPTION_TOKENS), generator=generator, device=device)
    model = HerbariumClassifier(descriptions).eval()
    optimizer = torch.optim.AdamW(model.adapter.parameters(), lr=1e-3, fused=True)
    sheets = torch.randn(4, SHEETS, PATCHES, PATCH_DIM, generator=generator, device=device)
    species = torch.randint(SPECIES, (4, SHEETS), generator=generator, device=device)

    losses = []
    for i in range(WARMUP):
        losses.append(train_step(model, optimizer, sheets[i % 4], species[i % 4], generator))
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            i = len(losses) % 4
            losses.append(train_step(model, optimizer, sheets[i], species[i], generator))
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
