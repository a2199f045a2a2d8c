"""Embeds aerial orthophoto tiles with a wide vision transformer for a search index."""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_orthophoto_embed"
TILES = 32
TILE = 256
PATCH = 16
WIDTH = 4096
HEADS = 32
LAYERS = 6
EMBED = 512
WARMUP = 5
BLOCKS = 5
STEPS_PER_BLOCK = 5


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, w = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.heads, w // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(dim=2))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, t, w))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class TileEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        side = TILE // PATCH
        self.patches = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(side * side, WIDTH))
        self.layers = nn.ModuleList([Layer(WIDTH, HEADS) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, EMBED, bias=False)

    def forward(self, tiles):
        b, c, h, w = tiles.shape
        x = tiles.view(b, c, h // PATCH, PATCH, w // PATCH, PATCH)
        x = x.permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * PATCH * PATCH)
        x = self.patches(x) + self.position
        for layer in self.layers:
            x = layer(x)
        pooled = self.norm(x.mean(dim=1))
        return F.normalize(self.project(pooled).float(), dim=1)


def normalise(tiles):
    """Bytes of the tile server to the range that the encoder was trained on."""
    return tiles.to(torch.bfloat16).sub_(118.0).div_(58.0)


@torch.inference_mode()
def embed_batch(model, tiles, index, row):
    index[row:row + tiles.shape[0]] = model(normalise(tiles))


def build_model(device):
    """Random weights in place of the checkpoint, created where they are used."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with device:
        model = TileEncoder()
    torch.set_default_dtype(default)
    return model.eval()


def synthetic_tiles(count, generator, device):
    """Coarse fields and roads in bytes, as a tile server would return them."""
    coarse = torch.rand(count * TILES, 3, 16, 16, generator=generator, device=device)
    fields = F.interpolate(coarse, size=(TILE, TILE), mode="nearest")
    noise = 0.1 * torch.rand(fields.shape, generator=generator, device=device)
    tiles = ((0.85 * fields + noise) * 255.0).clamp_(0, 255).to(torch.uint8)
    return tiles.view(count, TILES, 3, TILE, TILE)


def main():
    device = torch.device("cuda")
    torch.manual_seed(29)
    generator = torch.Generator(device=device).manual_seed(6)
    model = build_model(device)
    tiles = synthetic_tiles(4, generator, device)
    total_steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    index = torch.zeros(total_steps * TILES, EMBED, device=device)

    for i in range(WARMUP):
        embed_batch(model, tiles[i % len(tiles)], index, i * TILES)
    torch.cuda.synchronize()

    times = []
    steps = WARMUP
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            embed_batch(model, tiles[steps % len(tiles)], index, steps * TILES)
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    similarity = index[:TILES] @ index[TILES:2 * TILES].t()
    print(json.dumps({
        "program": NAME,
        "steps": steps,
        "us": statistics.median(times),
        "result": [index.pow(2).sum().item(), similarity.mean().item()],
    }))


if __name__ == "__main__":
    main()
