"""Fine-tuning of a small encoder that sorts building-permit letters.

A municipal office receives letters in twelve matters (objection, request for
documents, change of plans, ...).  The text is already tokenised; the model is
a DistilBERT trained from our own vocabulary.  Dropout is off for this run, to
compare learning rates on equal terms.
"""
import json
import statistics
import time

import numpy as np
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

NAME = "hf_permit_letters"
DEVICE = "cuda"
VOCAB = 16000
CLS, SEP, PAD = 1, 2, 0
MATTERS = 12
MAX_LENGTH = 512
BATCH = 96
BATCHES = 6
WARMUP = 6
BLOCKS = 6
PER_BLOCK = 4


def build_model():
    torch.manual_seed(77)
    config = DistilBertConfig(
        vocab_size=VOCAB,
        max_position_embeddings=MAX_LENGTH,
        n_layers=6,
        n_heads=12,
        dim=768,
        hidden_dim=3072,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
        pad_token_id=PAD,
        num_labels=MATTERS,
    )
    model = DistilBertForSequenceClassification(config)
    return model.to(DEVICE).train()


def make_letters(rng, count):
    """Token lists; most letters are a paragraph or two."""
    letters, matters = [], []
    for _ in range(count):
        matter = int(rng.integers(MATTERS))
        length = int(np.clip(rng.lognormal(4.1, 0.3), 16, 126))
        common = rng.integers(10, VOCAB, length)
        topical = 10 + matter * 50 + rng.integers(0, 50, length)
        body = np.where(rng.random(length) < 0.3, topical, common)
        letters.append([CLS, *body.tolist(), SEP])
        matters.append(matter)
    return letters, matters


def collate(letters, matters):
    """Tensors of one batch on the device."""
    length = MAX_LENGTH
    tokens = torch.full((len(letters), length), PAD, dtype=torch.long)
    mask = torch.zeros((len(letters), length), dtype=torch.long)
    for row, letter in enumerate(letters):
        tokens[row, :len(letter)] = torch.tensor(letter)
        mask[row, :len(letter)] = 1
    return {
        "input_ids": tokens.to(DEVICE),
        "attention_mask": mask.to(DEVICE),
        "labels": torch.tensor(matters, device=DEVICE),
    }


def make_batches():
    rng = np.random.default_rng(1908)
    batches = []
    for _ in range(BATCHES):
        letters, matters = make_letters(rng, BATCH)
        batches.append(collate(letters, matters))
    return batches


def train_step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    torch.set_float32_matmul_precision("high")
    batches = make_batches()
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)

    losses, times = [], []
    for i in range(WARMUP):
        losses.append(train_step(model, optimizer, batches[i % BATCHES]))
    torch.cuda.synchronize()

    for block in range(BLOCKS):
        begin = time.perf_counter()
        for i in range(PER_BLOCK):
            batch = batches[(block * PER_BLOCK + i) % BATCHES]
            losses.append(train_step(model, optimizer, batch))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)

    losses = torch.stack(losses).tolist()
    print(json.dumps({"program": NAME, "steps": len(losses),
                      "us": statistics.median(times) * 1e6,
                      "result": [losses[0], sum(losses[-4:]) / 4]}))


if __name__ == "__main__":
    main()
