"""Triage of digitised letters of a city archive with a BERT classifier (inference).

A request is a folder of letters, already tokenised.  Most letters are short notes, a few
fill several pages and are cut at the model's limit.  The answer is one class per letter
with its margin.
"""
import json
import statistics
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

VOCAB, LIMIT = 12000, 512
PAD, CLS, SEP = 0, 1, 2
CLASSES = 14
FOLDER, BATCH = 128, 32
FOLDERS = 8
WARMUP, BLOCKS, PER_BLOCK = 8, 8, 4


def build_model(seed=31):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=1024,
        num_hidden_layers=6,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=LIMIT,
        num_labels=CLASSES,
        pad_token_id=PAD,
    )
    model = BertForSequenceClassification(config)
    return model.to(device="cuda", dtype=torch.bfloat16).eval()


def synth_folder(rng):
    """Token lists as the tokenizer of the archive gives them."""
    lengths = np.clip(np.exp(rng.normal(4.2, 0.7, FOLDER)), 12, LIMIT).astype(int)
    letters = []
    for length in lengths:
        topic = rng.integers(10, VOCAB - 400)
        body = np.where(rng.random(length - 2) < 0.3,
                        topic + rng.integers(0, 400, length - 2),
                        rng.integers(10, VOCAB, length - 2))
        letters.append([CLS, *body.tolist(), SEP])
    return letters


def collate(letters):
    """Token ids and mask of one batch, on the GPU."""
    width = -(-max(map(len, letters)) // 8) * 8
    ids = np.full((len(letters), width), PAD, dtype=np.int64)
    mask = np.zeros((len(letters), width), dtype=np.int64)
    for row, tokens in enumerate(letters):
        ids[row, :len(tokens)] = tokens
        mask[row, :len(tokens)] = 1
    return {
        "input_ids": torch.from_numpy(ids).cuda(),
        "attention_mask": torch.from_numpy(mask).cuda(),
    }


def make_batches(letters):
    """Batches of a folder with the places of their letters in it."""
    order = np.argsort([len(tokens) for tokens in letters], kind="stable")
    batches = []
    for first in range(0, len(order), BATCH):
        places = order[first:first + BATCH]
        batches.append((torch.from_numpy(places).cuda(), collate([letters[p] for p in places])))
    return batches


class Triage:
    def __init__(self, model):
        self.model = model

    def classify(self, batches):
        scores = torch.empty(FOLDER, CLASSES, device="cuda")
        for places, inputs in batches:
            scores[places] = self.model(**inputs).logits.float()
        best = scores.topk(2, dim=1)
        return best.indices[:, 0], best.values[:, 0] - best.values[:, 1], scores


@torch.inference_mode()
def main():
    rng = np.random.default_rng(17)
    triage = Triage(build_model())
    # folders come from the queue of the reading room, prepared by its own workers
    queue = [make_batches(synth_folder(rng)) for _ in range(FOLDERS)]

    steps = WARMUP + BLOCKS * PER_BLOCK
    margins = torch.zeros(steps, device="cuda")
    energy = torch.zeros(steps, device="cuda")

    def answer(index):
        _, margin, scores = triage.classify(queue[index % FOLDERS])
        margins[index] = margin.mean()
        energy[index] = scores.square().mean().sqrt()

    done = 0
    for _ in range(WARMUP):
        answer(done)
        done += 1
    torch.cuda.synchronize()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            answer(done)
            done += 1
        torch.cuda.synchronize()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    print(f"{done} folders of {FOLDER} letters")
    print(json.dumps({
        "program": "hf_letters",
        "steps": done,
        "us": statistics.median(per_step),
        "result": [margins.mean().item(), energy.mean().item()],
    }))


if __name__ == "__main__":
    main()
