"""Fine-tune a small BERT on triage of short clinic notes (synthetic tokens)."""
import json
import statistics
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

SEED = 99
VOCAB = 6000
MAX_LENGTH = 512
CLASSES = 5
BATCH = 64
WARMUP = 6
BLOCKS = 8
BLOCK_STEPS = 4
STEPS = WARMUP + BLOCKS * BLOCK_STEPS

PAD, CLS, SEP, FIRST_WORD = 0, 1, 2, 10


def write_notes(count):
    """Notes as lists of token ids; most are a few sentences long."""
    rng = np.random.default_rng(SEED)
    urgency = rng.integers(0, CLASSES, count)
    lengths = np.clip(rng.lognormal(3.7, 0.45, count), 8, 110).astype(int)
    notes = []
    for label, length in zip(urgency, lengths):
        words = rng.zipf(1.3, length) % (VOCAB - FIRST_WORD) + FIRST_WORD
        hints = rng.random(length) < 0.15
        words[hints] = FIRST_WORD + 50 + 7 * label
        notes.append(np.concatenate([[CLS], words, [SEP]]))
    return notes, urgency


class Collator:
    """Turns a list of notes into the tensors that the model wants."""

    def __init__(self, pad_id=PAD, max_length=MAX_LENGTH):
        self.pad_id = pad_id
        self.max_length = max_length

    def __call__(self, notes, labels):
        width = self.max_length
        ids = np.full((len(notes), width), self.pad_id, dtype=np.int64)
        mask = np.zeros((len(notes), width), dtype=np.int64)
        for row, note in enumerate(notes):
            note = note[:width]
            ids[row, :len(note)] = note
            mask[row, :len(note)] = 1
        return {
            "input_ids": torch.from_numpy(ids).pin_memory(),
            "attention_mask": torch.from_numpy(mask).pin_memory(),
            "labels": torch.from_numpy(np.asarray(labels, dtype=np.int64)).pin_memory(),
        }


def build_model():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=512,
        num_hidden_layers=6,
        num_attention_heads=8,
        intermediate_size=2048,
        max_position_embeddings=MAX_LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=CLASSES,
        pad_token_id=PAD,
    )
    return BertForSequenceClassification(config)


def train_step(model, opt, batch):
    batch = {name: t.to("cuda", non_blocking=True) for name, t in batch.items()}
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch).loss
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach().float()


def main():
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    notes, urgency = write_notes(STEPS * BATCH)
    collate = Collator()
    batches = [
        collate(notes[i:i + BATCH], urgency[i:i + BATCH])
        for i in range(0, len(notes), BATCH)
    ]

    model = build_model().cuda().train()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    total = torch.zeros((), device="cuda")
    queue = iter(batches)

    def run(count):
        for _ in range(count):
            total.add_(train_step(model, opt, next(queue)))

    run(WARMUP)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(BLOCK_STEPS)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)

    print(json.dumps({
        "program": "hf_clinic_notes",
        "steps": STEPS,
        "us": statistics.median(times),
        "result": [total.item() / STEPS],
    }))


if __name__ == "__main__":
    main()
