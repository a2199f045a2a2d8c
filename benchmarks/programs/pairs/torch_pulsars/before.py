# Pulsar candidate ranking with an MLP-Mixer over folded phase/frequency cubes.
# (was train_mixer.ipynb; cells kept in order)

# %% imports
import json
import time
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F

# %% config


@dataclass
class Cfg:
    batch: int = 64
    sub_bands: int = 16        # frequency patches
    phase_bins: int = 16       # phase patches
    patch: int = 64            # samples in one patch
    width: int = 768
    token_hidden: int = 256
    channel_hidden: int = 1536
    depth: int = 6
    classes: int = 4           # pulsar, RRAT, RFI, noise
    lr: float = 2e-4
    warmup: int = 6
    blocks: int = 7
    per_block: int = 4


cfg = Cfg()
torch.manual_seed(1967)
dev = torch.device("cuda")
TOKENS = cfg.sub_bands * cfg.phase_bins

# %% model


class ChannelNorm(nn.Module):
    """Normalises every token over its channels; learned gain and offset."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.offset = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        mu = x.mean(dim=-1, keepdim=True)
        centred = x - mu
        var = (centred * centred).mean(dim=-1, keepdim=True)
        normed = centred / torch.sqrt(var + self.eps)
        return normed * self.gain + self.offset


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class MixerBlock(nn.Module):
    def __init__(self, c: Cfg):
        super().__init__()
        self.norm_tokens = ChannelNorm(c.width)
        self.tokens = Mlp(TOKENS, c.token_hidden)
        self.norm_channels = ChannelNorm(c.width)
        self.channels = Mlp(c.width, c.channel_hidden)

    def forward(self, x):
        y = self.norm_tokens(x).transpose(1, 2)
        x = x + self.tokens(y).transpose(1, 2)
        return x + self.channels(self.norm_channels(x))


class CandidateMixer(nn.Module):
    def __init__(self, c: Cfg):
        super().__init__()
        self.embed = nn.Linear(c.patch, c.width)
        self.blocks = nn.ModuleList(MixerBlock(c) for _ in range(c.depth))
        self.norm = ChannelNorm(c.width)
        self.head = nn.Linear(c.width, c.classes)

    def forward(self, cubes):
        x = self.embed(cubes).float()
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


# %% folded candidates, kept on the card: 4 batches are enough for the smoke run


def fold_candidates(n, gen):
    label = torch.randint(cfg.classes, (n,), generator=gen, device=dev)
    t = torch.linspace(0, 1, cfg.phase_bins * cfg.patch, device=dev)
    centre = torch.rand(n, 1, generator=gen, device=dev)
    width = 0.02 + 0.05 * label[:, None].float()
    pulse = torch.exp(-0.5 * ((t - centre) / width) ** 2)
    bands = pulse.view(n, 1, cfg.phase_bins, cfg.patch).expand(-1, cfg.sub_bands, -1, -1)
    noise = torch.randn(n, cfg.sub_bands, cfg.phase_bins, cfg.patch, generator=gen, device=dev)
    return (bands + 0.5 * noise).reshape(n, TOKENS, cfg.patch), label


gen = torch.Generator(device=dev).manual_seed(4)
batches = [fold_candidates(cfg.batch, gen) for _ in range(4)]

# %% training
model = CandidateMixer(cfg).to(dev)
opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01, fused=True)
total_loss = torch.zeros((), device=dev)
n_steps = 0


def train_step():
    global n_steps
    cubes, label = batches[n_steps % len(batches)]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(cubes)
    loss = F.cross_entropy(logits.float(), label)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    total_loss.add_(loss.detach())
    n_steps += 1


for _ in range(cfg.warmup):
    train_step()
torch.cuda.synchronize()

# %% timing
per_step = []
for _ in range(cfg.blocks):
    tic = time.perf_counter()
    for _ in range(cfg.per_block):
        train_step()
    torch.cuda.synchronize()
    per_step.append((time.perf_counter() - tic) / cfg.per_block * 1e6)

# %% report
mean_loss = (total_loss / n_steps).item()
print(f"{n_steps} steps, mean loss {mean_loss:.4f}")
print(json.dumps({"program": "torch_pulsars", "steps": n_steps,
                  "us": sorted(per_step)[len(per_step) // 2], "result": [mean_loss]}))
