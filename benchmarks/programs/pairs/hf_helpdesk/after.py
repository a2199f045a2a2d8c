"""Fine-tunes a BERT-style classifier on short help desk messages (synthetic token ids)."""
import json
import statistics
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

QUEUES = 12
BATCH = 64
MAX_LENGTH = 512
VOCABULARY = 8192
CLS, SEP, PAD = 1, 2, 0
WARMUP = 6
BLOCK = 5
BLOCKS = 6
STEPS = WARMUP + BLOCK * BLOCKS


def build_model():
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=768, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=3072, max_position_embeddings=MAX_LENGTH, num_labels=QUEUES,
        pad_token_id=PAD, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config)


def synthetic_messages(count, seed=31):
    """Token lists of 12 to 60 ids; each queue favours its own slice of the vocabulary."""
    rng = np.random.default_rng(seed)
    messages = []
    for k in range(count):
        queue = k % QUEUES
        length = int(rng.integers(12, 61))
        common = rng.integers(10, VOCABULARY, size=length)
        special = 100 + 50 * queue + rng.integers(0, 50, size=length)
        ids = np.where(rng.random(length) < 0.3, special, common)
        messages.append(([CLS, *ids.tolist(), SEP], queue))
    rng.shuffle(messages)
    return messages


class Collator:
    """Turns a list of (ids, queue) into pinned tensors."""

    def __init__(self, max_length=MAX_LENGTH):
        self.max_length = max_length

    def __call__(self, batch):
        longest = max(len(tokens) for tokens, _ in batch)
        width = min(self.max_length, (longest + 7) // 8 * 8)
        ids = np.full((len(batch), width), PAD, dtype=np.int64)
        mask = np.zeros((len(batch), width), dtype=np.int64)
        for row, (tokens, _) in enumerate(batch):
            tokens = tokens[:width]
            ids[row, :len(tokens)] = tokens
            mask[row, :len(tokens)] = 1
        labels = np.array([queue for _, queue in batch], dtype=np.int64)
        return {
            "input_ids": torch.from_numpy(ids).pin_memory(),
            "attention_mask": torch.from_numpy(mask).pin_memory(),
            "labels": torch.from_numpy(labels).pin_memory(),
        }


class Tuner:
    def __init__(self, model, learning_rate=3e-5):
        self.model = model.cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate,
                                           weight_decay=0.01, fused=True)
        self.loss_sum = torch.zeros((), device="cuda")

    def step(self, batch):
        batch = {name: value.cuda(non_blocking=True) for name, value in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(**batch).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    tuner = Tuner(build_model())
    collate = Collator()
    messages = synthetic_messages(STEPS * BATCH)
    batches = [collate(messages[k * BATCH:(k + 1) * BATCH]) for k in range(STEPS)]

    for batch in batches[:WARMUP]:
        tuner.step(batch)
    torch.cuda.synchronize()
    times = []
    for block in range(BLOCKS):
        first = WARMUP + block * BLOCK
        start = time.perf_counter()
        for batch in batches[first:first + BLOCK]:
            tuner.step(batch)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK)

    print(json.dumps({"program": "hf_helpdesk", "steps": STEPS,
                      "us": statistics.median(times) * 1e6,
                      "result": [tuner.loss_sum.item() / STEPS]}))


if __name__ == "__main__":
    main()
