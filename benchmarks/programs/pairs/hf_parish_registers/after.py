"""Fine-tune a BERT-like encoder that sorts entries of parish registers
(baptism, marriage, burial, banns, note) from their transcribed words."""
import json
import statistics
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

PROGRAM = "hf_parish_registers"
WORDS, KINDS = 12000, 5
ENTRIES, BATCH, MAX_TOKENS = 1920, 64, 512
CLS, SEP, PAD = 1, 2, 0
WARMUP, BLOCKS, BLOCK = 6, 6, 4
SEED = 1754


class RegisterTokenizer:
    """Numbers of words, with the special tokens; returns tensors as the hub's do."""

    def __init__(self, max_tokens):
        self.max_tokens = max_tokens

    def __call__(self, entries):
        longest = max(len(words) for words in entries) + 2
        width = min(self.max_tokens, -(-longest // 8) * 8)
        ids = np.full((len(entries), width), PAD, np.int64)
        for row, words in zip(ids, entries):
            words = words[:self.max_tokens - 2]
            row[0] = CLS
            row[1:len(words) + 1] = words
            row[len(words) + 1] = SEP
        ids = torch.from_numpy(ids)
        return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def transcribe(rng):
    """Entries of some dozens of words; each kind has its own formulas."""
    kinds = rng.integers(0, KINDS, ENTRIES)
    lengths = np.clip(rng.lognormal(np.log(45), 0.45, ENTRIES), 12, 150).astype(int)
    entries = []
    for kind, length in zip(kinds, lengths):
        words = 10 + (rng.zipf(1.3, length) * 37) % (WORDS - 10)
        formula = rng.random(length) < 0.15
        words[formula] = 10 + kind * 40 + rng.integers(0, 40, int(formula.sum()))
        entries.append(words)
    return entries, kinds


def build_model():
    config = BertConfig(vocab_size=WORDS, hidden_size=768, num_hidden_layers=6,
                        num_attention_heads=12, intermediate_size=3072,
                        max_position_embeddings=MAX_TOKENS, num_labels=KINDS,
                        pad_token_id=PAD, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0)
    return BertForSequenceClassification(config)


def batches_of(entries, kinds, tokenizer, rng):
    """Tokenised batches for one epoch, in pinned memory."""
    order = rng.permutation(len(entries))
    for i in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[i:i + BATCH]
        batch = tokenizer([entries[j] for j in chosen])
        batch["labels"] = torch.from_numpy(kinds[chosen].astype(np.int64))
        yield {name: value.pin_memory() for name, value in batch.items()}


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    torch.set_float32_matmul_precision("high")
    entries, kinds = transcribe(rng)
    tokenizer = RegisterTokenizer(MAX_TOKENS)
    batches = list(batches_of(entries, kinds, tokenizer, rng))
    with torch.device("cuda"):
        model = build_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    steps = WARMUP + BLOCKS * BLOCK
    losses = torch.zeros(steps, device="cuda")

    def step(k):
        batch = {name: value.cuda(non_blocking=True)
                 for name, value in batches[k % len(batches)].items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses[k] = loss.detach()

    for k in range(WARMUP):
        step(k)
    torch.cuda.synchronize()
    times = []
    for b in range(BLOCKS):
        begin = time.perf_counter()
        for k in range(BLOCK):
            step(WARMUP + b * BLOCK + k)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / BLOCK)

    words = sum(len(e) for e in entries) / len(entries)
    print(f"{words:.0f} words an entry, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": statistics.median(times) * 1e6,
                      "result": [float(losses[0]), float(losses.mean())]}))


if __name__ == "__main__":
    main()
