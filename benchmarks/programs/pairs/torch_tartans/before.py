"""Name the clan of a tartan photograph by its nearest reference swatches.

A frozen ResNet-18 gives features; only a small projection head and the
temperature are adapted, on batches of augmented query photographs that are
compared with the register's reference swatches.
"""
import json
import time
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import resnet18


@dataclass
class Config:
    clans: int = 128
    swatches: int = 8          # reference swatches for each clan
    size: int = 128
    queries: int = 64
    proj: int = 128
    lr: float = 1e-3
    warmup: int = 6
    blocks: int = 6
    per_block: int = 5


def weave(n, size, colours, generator, device):
    """Random tartan-like images: the warp's stripes blended with the weft's."""
    stripes = torch.randint(0, colours.shape[0], (n, size // 8), generator=generator, device=device)
    stripes = stripes.repeat_interleave(8, dim=1)                # n, size
    warp = colours[stripes]                                      # n, size, 3
    image = 0.5 * (warp[:, :, None, :] + warp[:, None, :, :])
    return image.permute(0, 3, 1, 2)


class Matcher(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.backbone = resnet18(weights=None)
        self.backbone.fc = nn.Identity()
        self.backbone.requires_grad_(False)
        self.backbone.to(torch.bfloat16, memory_format=torch.channels_last)
        self.head = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, cfg.proj))
        self.log_temp = nn.Parameter(torch.tensor(2.0))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()        # statistics of the frozen part stay as they are
        return self

    @torch.no_grad()
    def features(self, images):
        return self.backbone(images).float()

    def embed(self, features):
        return F.normalize(self.head(features), dim=-1)

    def forward(self, images, swatches, clans):
        refs = self.embed(self.features(swatches))
        queries = self.embed(self.features(images))
        sims = queries @ refs.t() * self.log_temp.exp()
        # log-mean of the swatches that belong to a clan
        sims = sims.view(len(images), clans, -1)
        return torch.logsumexp(sims, dim=2)


@torch.no_grad()
def settle_statistics(model, images):
    """A few forward passes in training mode so that batch norm has sane statistics."""
    for module in model.backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None      # cumulative average
    model.backbone.train()
    for part in images.split(256):
        model.backbone(part)
    model.eval()


def main(cfg=Config()):
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(3)
    gen = torch.Generator(device=device).manual_seed(4)

    colours = torch.rand(12, 3, generator=gen, device=device) * 2 - 1
    swatches = weave(cfg.clans * cfg.swatches, cfg.size, colours, gen, device)
    swatches = swatches.to(torch.bfloat16, memory_format=torch.channels_last)
    owners = torch.arange(cfg.clans, device=device).repeat_interleave(cfg.swatches)

    model = Matcher(cfg).to(device)
    settle_statistics(model, swatches)
    model.train()
    opt = torch.optim.Adam([*model.head.parameters(), model.log_temp], lr=cfg.lr, fused=True)

    def photograph():
        """Query batch: swatches seen under another light, with sensor noise."""
        pick = torch.randint(0, len(swatches), (cfg.queries,), generator=gen, device=device)
        light = 1 + 0.2 * torch.randn(cfg.queries, 3, 1, 1, generator=gen, device=device)
        noise = torch.randn(cfg.queries, 3, cfg.size, cfg.size, generator=gen, device=device)
        images = swatches[pick].float() * light + 0.1 * noise
        return images.to(torch.bfloat16, memory_format=torch.channels_last), owners[pick]

    losses = []

    def step():
        images, target = photograph()
        scores = model(images, swatches, cfg.clans)
        loss = F.cross_entropy(scores, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())

    def timed(n):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(n):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / n * 1e6

    timed(cfg.warmup)
    spans = [timed(cfg.per_block) for _ in range(cfg.blocks)]

    history = torch.stack(losses)
    print(f"loss {history[0].item():.4f} -> {history[-1].item():.4f}")
    print(json.dumps({
        "program": "torch_tartans",
        "steps": len(losses),
        "us": median(spans),
        "result": [history.mean().item(), history[-1].item(), model.log_temp.item()],
    }))


if __name__ == "__main__":
    main()
