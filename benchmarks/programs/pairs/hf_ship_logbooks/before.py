"""Classify the entries of historical ship logbooks by their main subject.

Entries are split into words, encoded and passed in batches through an encoder
with a classification head; the label probabilities go to the archive index.
"""
import json
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

NAME = "hf_ship_logbooks"
LABELS = 12
BATCH = 192
BATCHES = 20
MAX_LENGTH = 512
WARMUP = 10
BLOCKS = 8
PER_BLOCK = 5

SYLLABLES = ["ba", "cor", "den", "fel", "gan", "hul", "jib", "kee", "lar", "mar", "nor",
             "ost", "por", "qua", "ree", "sal", "tac", "ves", "win", "yar"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


class LogTokenizer:
    """Whole-word vocabulary with the usual special marks."""

    def __init__(self, words):
        self.ids = {word: number for number, word in enumerate(SPECIAL + words)}
        self.pad = self.ids["[PAD]"]
        self.unknown = self.ids["[UNK]"]
        self.begin = self.ids["[CLS]"]
        self.end = self.ids["[SEP]"]

    def __len__(self):
        return len(self.ids)

    def encode(self, text, limit):
        ids = [self.ids.get(word, self.unknown) for word in text.split()]
        return [self.begin] + ids[:limit - 2] + [self.end]


def make_words():
    return [a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES]


def write_entries(words, count, rng):
    """Entries of a few sentences with a skewed choice of words."""
    lengths = np.clip(rng.normal(105.0, 22.0, count), 30, 148).astype(np.int64)
    rank = np.arange(1, len(words) + 1)
    chance = 1.0 / (rank + 20.0)
    choice = rng.choice(len(words), size=int(lengths.sum()), p=chance / chance.sum())
    entries = []
    first = 0
    for length in lengths:
        entries.append(" ".join(words[i] for i in choice[first:first + length]))
        first += length
    return entries


def collate(encoded, pad):
    """Stack encoded entries into one rectangle of ids and its mask."""
    length = MAX_LENGTH
    ids = np.full((len(encoded), length), pad, dtype=np.int64)
    mask = np.zeros((len(encoded), length), dtype=np.int64)
    for row, entry in enumerate(encoded):
        ids[row, :len(entry)] = entry
        mask[row, :len(entry)] = 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


def build_classifier(vocabulary, device):
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=MAX_LENGTH,
        num_labels=LABELS,
        pad_token_id=0,
    )
    model = BertForSequenceClassification(config)
    return model.to(device=device, dtype=torch.bfloat16).eval()


def main():
    torch.manual_seed(31)
    rng = np.random.default_rng(17)
    device = torch.device("cuda")

    words = make_words()
    tokenizer = LogTokenizer(words)
    entries = write_entries(words, BATCH * BATCHES, rng)
    encoded = [tokenizer.encode(text, MAX_LENGTH) for text in entries]
    batches = []
    for first in range(0, len(encoded), BATCH):
        ids, mask = collate(encoded[first:first + BATCH], tokenizer.pad)
        batches.append((ids.to(device), mask.to(device)))

    model = build_classifier(len(tokenizer), device)
    index = []

    def classify(n):
        ids, mask = batches[n % BATCHES]
        logits = model(input_ids=ids, attention_mask=mask).logits
        index.append(logits.float().softmax(dim=-1))

    steps = 0
    times = []
    with torch.inference_mode():
        for _ in range(WARMUP):
            classify(steps)
            steps += 1
        torch.cuda.synchronize()
        for _ in range(BLOCKS):
            start = time.perf_counter()
            for _ in range(PER_BLOCK):
                classify(steps)
                steps += 1
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)
        chance = torch.stack(index).double()
        entropy = -(chance * chance.log()).sum(dim=-1).mean()
        result = [float(entropy), float(chance.max(dim=-1).values.mean()), float(chance.std())]

    times.sort()
    print(json.dumps({"program": NAME, "steps": steps, "us": times[len(times) // 2], "result": result}))


if __name__ == "__main__":
    main()
