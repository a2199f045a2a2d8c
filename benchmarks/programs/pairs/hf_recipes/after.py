"""Fine-tunes a small BERT (from scratch here) to guess the cuisine of a recipe.

The texts are ingredient lists plus the first instructions.  A toy word-level
tokenizer stands in for the trained one, so that nothing has to be downloaded.
"""
import json
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

CUISINES = 20
VOCAB = 6000
PAD, CLS, SEP = 0, 1, 2
MAX_TOKENS = 512
BATCH = 64
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 4


def cook_up_recipes(n, seed):
    """Token id lists; each cuisine prefers its own slice of the vocabulary."""
    rng = np.random.default_rng(seed)
    recipes = []
    for _ in range(n):
        cuisine = int(rng.integers(CUISINES))
        length = int(np.clip(rng.lognormal(4.1, 0.35), 16, 126))
        own = rng.integers(100 + 250 * cuisine, 100 + 250 * (cuisine + 1), length)
        common = rng.integers(3, VOCAB, length)
        words = np.where(rng.random(length) < 0.3, own, common)
        recipes.append((words.tolist(), cuisine))
    return recipes


class WordTokenizer:
    def __init__(self, max_length=MAX_TOKENS):
        self.max_length = max_length

    def encode_batch(self, texts):
        rows = [[CLS] + t[: self.max_length - 2] + [SEP] for t in texts]
        longest = max(len(row) for row in rows)
        width = min(self.max_length, -(-longest // 8) * 8)
        ids = torch.full((len(rows), width), PAD, dtype=torch.long)
        attention = torch.zeros((len(rows), width), dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            attention[i, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": attention}


class RecipeCollator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, recipes):
        batch = self.tokenizer.encode_batch([words for words, _ in recipes])
        batch["labels"] = torch.tensor([cuisine for _, cuisine in recipes])
        return {k: v.pin_memory() for k, v in batch.items()}


def build_classifier():
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=768, num_hidden_layers=4, num_attention_heads=12,
        intermediate_size=3072, max_position_embeddings=MAX_TOKENS, num_labels=CUISINES,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=PAD,
    )
    return BertForSequenceClassification(config)


class Finetuner:
    def __init__(self, model, lr=1e-4):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
        self.loss_sum = torch.zeros((), device="cuda")
        self.steps = 0

    def training_step(self, batch):
        batch = {k: v.to("cuda", non_blocking=True) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = self.model(**batch)
        out.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_sum += out.loss.detach()
        self.steps += 1


def main():
    torch.manual_seed(1796)
    recipes = cook_up_recipes(BATCH * 6, seed=11)
    collate = RecipeCollator(WordTokenizer())
    batches = [collate(recipes[i:i + BATCH]) for i in range(0, len(recipes), BATCH)]

    model = build_classifier().cuda().train()
    tuner = Finetuner(model)

    for i in range(WARMUP):
        tuner.training_step(batches[i % len(batches)])
    torch.cuda.synchronize()

    samples = []
    for _ in range(BLOCKS):
        t = time.perf_counter()
        for _ in range(PER_BLOCK):
            tuner.training_step(batches[tuner.steps % len(batches)])
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - t) / PER_BLOCK)

    mean_loss = (tuner.loss_sum / tuner.steps).item()
    print(json.dumps({"program": "hf_recipes", "steps": tuner.steps,
                      "us": float(np.median(samples)) * 1e6, "result": [mean_loss]}))


if __name__ == "__main__":
    main()
