"""Naming of moths at a light trap from written descriptions of the species.

Two towers map photographs and species descriptions into one space; a photograph
gets the species whose description vector is the nearest.
"""
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_moth_zeroshot"
SPECIES = 400
TEXTS_PER_SPECIES = 4
TEXT_LENGTH = 32
VOCABULARY = 6000
IMAGES = 256
SIDE = 224
PATCH = 16
WIDTH = 512
HEADS = 8
IMAGE_LAYERS = 10
TEXT_LAYERS = 8
BATCHES = 3
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 8


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm_b = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, w = x.shape
        qkv = self.qkv(self.norm_a(x)).view(b, s, 3, self.heads, w // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, s, w))
        return x + self.fc2(F.gelu(self.fc1(self.norm_b(x))))


class ImageTower(nn.Module):
    def __init__(self):
        super().__init__()
        patches = (SIDE // PATCH) ** 2
        self.embed = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(1, patches, WIDTH))
        self.blocks = nn.Sequential(*[Block(WIDTH, HEADS) for _ in range(IMAGE_LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, pixels):
        n = SIDE // PATCH
        cells = pixels.view(-1, 3, n, PATCH, n, PATCH).permute(0, 2, 4, 1, 3, 5)
        x = self.embed(cells.reshape(-1, n * n, 3 * PATCH * PATCH)) + self.position
        return self.norm(self.blocks(x).mean(dim=1))


class TextTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(1, TEXT_LENGTH, WIDTH))
        self.blocks = nn.Sequential(*[Block(WIDTH, HEADS) for _ in range(TEXT_LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        return self.norm(self.blocks(x).mean(dim=1))


class MothMatcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = ImageTower()
        self.text = TextTower()
        self.scale = 20.0

    def species_vectors(self, tokens):
        texts = F.normalize(self.text(tokens).float(), dim=-1)
        return F.normalize(texts.view(SPECIES, TEXTS_PER_SPECIES, WIDTH).mean(dim=1), dim=-1)

    def image_vectors(self, photographs):
        pixels = photographs.to(torch.bfloat16).sub_(127.5).div_(64.0)
        return F.normalize(self.image(pixels).float(), dim=-1)

    def forward(self, photographs, species):
        images = self.image_vectors(photographs)
        return self.scale * images @ species.t()


def make_data(device):
    gen = torch.Generator(device=device).manual_seed(911)
    tokens = torch.randint(0, VOCABULARY, (SPECIES * TEXTS_PER_SPECIES, TEXT_LENGTH),
                           generator=gen, device=device)
    batches = [torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), generator=gen, device=device,
                             dtype=torch.uint8) for _ in range(BATCHES)]
    return tokens, batches


def main():
    torch.manual_seed(31)
    device = torch.device("cuda")
    model = MothMatcher().to(device=device, dtype=torch.bfloat16).eval()
    tokens, batches = make_data(device)

    times = []
    done = 0
    best_sum = torch.zeros((), device=device)
    entropy_sum = torch.zeros((), device=device)
    with torch.inference_mode():
        species = model.species_vectors(tokens)
        for i in range(WARMUP):
            model(batches[i % BATCHES], species)
        torch.cuda.synchronize()
        for _ in range(BLOCKS):
            start = time.perf_counter()
            for _ in range(STEPS_PER_BLOCK):
                logits = model(batches[done % BATCHES], species)
                logp = logits.log_softmax(dim=-1)
                best_sum += logits.amax(dim=-1).mean()
                entropy_sum -= (logp.exp() * logp).sum(dim=-1).mean()
                done += 1
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    times.sort()
    median = 0.5 * (times[(len(times) - 1) // 2] + times[len(times) // 2])
    result = [float(best_sum) / done, float(entropy_sum) / done, float(logits.norm())]
    print(json.dumps({"program": NAME, "steps": done + WARMUP, "us": median * 1e6, "result": result}))


if __name__ == "__main__":
    main()
