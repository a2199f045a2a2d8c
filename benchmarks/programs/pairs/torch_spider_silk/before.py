"""Fits a sequence model of spider silk proteins: masked residue recovery and fibre toughness from bucketed sequences."""
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_spider_silk"
SEED = 8080
DEVICE = torch.device("cuda")

RESIDUES = 20
PAD, MASK = 20, 21
VOCAB = 22
MIN_LEN, MAX_LEN = 136, 256
DIM = 768
HEADS = 12
LAYERS = 8
BATCH = 128
BUCKETS = 8
MOTIFS = ("GPGGX", "GAGAGS", "GGX", "AAAAAA", "GPGQQ")
ALPHABET = "ARNDCQEGHILKMFPSTWYV"


def simulate_sequence(rng, length):
    """Repeats of a few motifs, X standing for any residue; toughness follows the motif mix."""
    mix = rng.dirichlet(np.ones(len(MOTIFS)))
    picks = rng.choice(len(MOTIFS), size=length // 3 + 1, p=mix)
    text = "".join(MOTIFS[i] for i in picks)[:length]
    codes = np.array([ALPHABET.find(c) for c in text])
    unknown = codes < 0
    codes[unknown] = rng.integers(0, RESIDUES, size=unknown.sum())
    toughness = mix @ np.array([0.9, 1.6, 0.4, 2.1, 0.7])
    return codes, toughness


def collate(sequences, toughness, rng):
    """Padded tokens, targets at the masked residues, validity and lengths."""
    width = MAX_LEN
    tokens = np.full((len(sequences), width), PAD, dtype=np.int64)
    target = np.full((len(sequences), width), -100, dtype=np.int64)
    for i, seq in enumerate(sequences):
        hidden = rng.random(len(seq)) < 0.15
        tokens[i, :len(seq)] = np.where(hidden, MASK, seq)
        target[i, :len(seq)] = np.where(hidden, seq, -100)
    tokens = torch.from_numpy(tokens).to(DEVICE)
    target = torch.from_numpy(target).to(DEVICE)
    value = torch.tensor(toughness, dtype=torch.float32, device=DEVICE)
    return tokens, target, value


def bucketed_batches(rng):
    """Sequences sorted by length and cut into batches."""
    lengths = np.sort(rng.integers(MIN_LEN, MAX_LEN + 1, size=BATCH * BUCKETS))
    records = [simulate_sequence(rng, int(n)) for n in lengths]
    batches = []
    for b in range(BUCKETS):
        part = records[b * BATCH:(b + 1) * BATCH]
        batches.append(collate([r[0] for r in part], [r[1] for r in part], rng))
    return batches


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_a = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.norm_m = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, 4 * DIM)
        self.down = nn.Linear(4 * DIM, DIM)

    def forward(self, x, keep):
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(b, s, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.norm_m(x))))


class SilkModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.residue = nn.Embedding(VOCAB, DIM)
        self.position = nn.Embedding(MAX_LEN, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.recover = nn.Linear(DIM, RESIDUES)
        self.toughness = nn.Linear(DIM, 1)

    def forward(self, tokens):
        valid = tokens != PAD
        x = self.residue(tokens) + self.position.weight[:tokens.shape[1]]
        keep = valid[:, None, None, :]
        for block in self.blocks:
            x = block(x, keep)
        x = self.norm(x)
        weight = valid.unsqueeze(2).to(x.dtype)
        pooled = (x * weight).sum(dim=1) / weight.sum(dim=1)
        return self.recover(x), self.toughness(pooled).squeeze(1)


def train_step(model, optimizer, batch):
    tokens, target, value = batch
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device_type=DEVICE.type, dtype=torch.bfloat16):
        logits, estimate = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=-100)
        loss = loss + 0.1 * F.mse_loss(estimate.float(), value)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    batches = bucketed_batches(rng)
    model = SilkModel().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)

    losses = [train_step(model, optimizer, b) for b in batches]
    torch.cuda.synchronize()

    times, steps = [], 0
    for _ in range(8):
        start = time.perf_counter()
        for batch in batches:
            losses.append(train_step(model, optimizer, batch))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BUCKETS)
        steps += BUCKETS

    losses = torch.stack(losses).cpu().numpy()
    result = [float(losses[:BUCKETS].mean()), float(losses[-2 * BUCKETS:].mean())]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
