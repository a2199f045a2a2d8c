"""Embeddings of clauses in commercial leases, for a search index.

Leases are cut at sentence ends into passages; an encoder gives one unit vector
a passage, and the vectors are scored against a set of query vectors kept by
the legal team.
"""
import json
import statistics
import time

import numpy as np
import torch
from transformers import RobertaConfig, RobertaModel

PROGRAM = "hf_lease_clauses"
VOCABULARY = 8000
MAX_LENGTH = 512
BATCH = 48
BATCHES = 8
QUERIES = 256
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 6


class ClauseTokenizer:
    """Word-level tokenizer over a closed vocabulary of lease terms."""

    bos_token_id = 0
    pad_token_id = 1
    eos_token_id = 2

    def __init__(self, words):
        self.index = {word: number + 4 for number, word in enumerate(words)}

    def encode(self, text):
        ids = [self.index.get(word, 3) for word in text.split()]
        return [self.bos_token_id] + ids + [self.eos_token_id]

    def pad(self, encoded):
        length = MAX_LENGTH
        input_ids = np.full((len(encoded), length), self.pad_token_id, dtype=np.int64)
        attention_mask = np.zeros((len(encoded), length), dtype=np.int64)
        for row, ids in enumerate(encoded):
            input_ids[row, :len(ids)] = ids
            attention_mask[row, :len(ids)] = 1
        return torch.from_numpy(input_ids), torch.from_numpy(attention_mask)


def make_passages(rng, words):
    """Passages made of whole sentences, closed before the limit of words."""
    weights = 1.0 / np.arange(1, len(words) + 1)
    weights /= weights.sum()
    passages = []
    for _ in range(BATCH * BATCHES):
        size = int(rng.integers(372, 397))
        chosen = rng.choice(len(words), size=size, p=weights)
        passages.append(" ".join(words[number] for number in chosen))
    return passages


class PassageEncoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = RobertaConfig(
            vocab_size=VOCABULARY, hidden_size=1024, num_hidden_layers=12,
            num_attention_heads=16, intermediate_size=4096,
            max_position_embeddings=MAX_LENGTH + 2, type_vocab_size=1,
            pad_token_id=1, bos_token_id=0, eos_token_id=2)
        self.encoder = RobertaModel(config, add_pooling_layer=False)

    def forward(self, input_ids, attention_mask):
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * mask).float().sum(dim=1) / mask.float().sum(dim=1)
        return torch.nn.functional.normalize(pooled, dim=1)


@torch.no_grad()
def main():
    device = torch.device("cuda")
    torch.manual_seed(404)
    rng = np.random.default_rng(404)
    words = [f"term{number}" for number in range(VOCABULARY - 4)]
    tokenizer = ClauseTokenizer(words)
    encoded = [tokenizer.encode(text) for text in make_passages(rng, words)]
    loader = []
    for first in range(0, len(encoded), BATCH):
        input_ids, attention_mask = tokenizer.pad(encoded[first:first + BATCH])
        loader.append((input_ids.pin_memory(), attention_mask.pin_memory()))

    model = PassageEncoder().to(device).to(torch.bfloat16).eval()
    queries = torch.nn.functional.normalize(torch.randn(QUERIES, 1024, device=device), dim=1)
    index = torch.zeros(BATCHES, BATCH, 1024, device=device)
    scores = torch.zeros(BATCHES, BATCH, QUERIES, device=device)

    def step(number):
        slot = number % BATCHES
        input_ids, attention_mask = loader[slot]
        input_ids = input_ids.to(device, non_blocking=True)
        attention_mask = attention_mask.to(device, non_blocking=True)
        vectors = model(input_ids, attention_mask)
        index[slot] = vectors
        scores[slot] = vectors @ queries.T

    for number in range(WARMUP):
        step(number)
    torch.cuda.synchronize()

    times = []
    number = WARMUP
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(number)
            number += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    centre = index.reshape(-1, 1024).mean(dim=0)
    result = [centre.norm().item(), scores.abs().mean().item(), scores.max().item()]
    print(json.dumps({"program": PROGRAM, "steps": number,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
