"""Trains a small BERT to tag the tokens of knitting instructions: stitch, count, repeat bracket, row marker."""
import json
import time

import numpy as np
import torch
from transformers import BertConfig, BertForTokenClassification

NAME = "hf_knitting_charts"
SEED = 620
DEVICE = torch.device("cuda")

STITCHES = ["k", "p", "yo", "k2tog", "ssk", "sl", "m1l", "m1r", "c4f", "c4b"]
TAGS = {"marker": 0, "stitch": 1, "count": 2, "bracket": 3, "word": 4}
WORDS = ["to", "end", "rep", "from", "rs", "ws", "turn", "work", "even", "sts"]
LENGTH = 64
BATCH = 16
N_BATCHES = 8


def build_vocabulary():
    tokens = ["[PAD]", "row", ":", "*", "(", ")"] + STITCHES + WORDS + [str(n) for n in range(1, 41)]
    return {t: i for i, t in enumerate(tokens)}


def write_row(rng, number):
    """One row of a pattern as (token, tag) pairs."""
    row = [("row", "marker"), (str(1 + number % 40), "count"), (":", "marker")]
    for _ in range(rng.integers(2, 5)):
        group = []
        for _ in range(rng.integers(1, 4)):
            group.append((STITCHES[rng.integers(len(STITCHES))], "stitch"))
            group.append((str(rng.integers(1, 41)), "count"))
        if rng.random() < 0.5:
            group = [("*", "bracket")] + group + [("*", "bracket")]
        row += group
    row += [(WORDS[rng.integers(len(WORDS))], "word") for _ in range(rng.integers(1, 3))]
    return row


def make_batches(rng, vocabulary):
    batches = []
    for _ in range(N_BATCHES):
        ids, tags = [], []
        for _ in range(BATCH):
            pairs, number = [], int(rng.integers(40))
            while len(pairs) < LENGTH:
                pairs += write_row(rng, number)
                number += 1
            ids.append([vocabulary[t] for t, _ in pairs[:LENGTH]])
            tags.append([TAGS[g] for _, g in pairs[:LENGTH]])
        batches.append((torch.tensor(ids, device=DEVICE), torch.tensor(tags, device=DEVICE)))
    return batches


def build_model(vocabulary):
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=256,
        num_hidden_layers=12,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=len(TAGS),
        attn_implementation="sdpa",
    )
    return BertForTokenClassification(config).to(DEVICE).train()


class ClippedAdamW:
    """Decoupled weight decay Adam with clipping of the global gradient norm."""

    def __init__(self, params, lr, weight_decay, max_norm, betas=(0.9, 0.999), eps=1e-8):
        self.params = list(params)
        self.max_norm = max_norm
        self.adamw = torch.optim.AdamW(self.params, lr=lr, betas=betas, eps=eps,
                                       weight_decay=weight_decay, fused=True)

    def zero_grad(self):
        self.adamw.zero_grad(set_to_none=True)

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.params, self.max_norm, foreach=True)

    def step(self):
        self.clip()
        self.adamw.step()


def train_step(model, optimizer, batch):
    ids, tags = batch
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=tags).loss
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    vocabulary = build_vocabulary()
    batches = make_batches(rng, vocabulary)
    model = build_model(vocabulary)
    optimizer = ClippedAdamW(model.parameters(), lr=1e-4, weight_decay=0.01, max_norm=1.0)

    losses = []
    for _ in range(2):
        for batch in batches:
            losses.append(train_step(model, optimizer, batch))
    torch.cuda.synchronize()

    times, steps = [], 0
    for _ in range(8):
        start = time.perf_counter()
        for batch in batches:
            losses.append(train_step(model, optimizer, batch))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / N_BATCHES)
        steps += N_BATCHES

    losses = torch.stack(losses).float().cpu().numpy()
    with torch.no_grad():
        norm = sum(float(p.norm()) for p in model.parameters())
    result = [float(losses[:N_BATCHES].mean()), float(losses[-N_BATCHES:].mean()), norm]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
