"""Object categories of museum inventory labels with a deep narrow BERT encoder."""
import json
import statistics
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

VOCABULARY = 8000
LENGTH = 256
BATCH = 80
CATEGORIES = 24
BATCHES = 6
WARMUP = 5
BLOCKS = 8
STEPS_PER_BLOCK = 5
CLS, SEP = 1, 2


def inventory(device):
    """Token rows of transcribed labels; every category prefers words of its own range."""
    gen = torch.Generator().manual_seed(19)
    rows = []
    for _ in range(BATCHES):
        category = torch.randint(0, CATEGORIES, (BATCH,), generator=gen)
        words = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=gen)
        special = 3 + category[:, None] * 300 + torch.randint(0, 300, (BATCH, LENGTH), generator=gen)
        chosen = torch.rand(BATCH, LENGTH, generator=gen) < 0.25
        tokens = torch.where(chosen, special, words)
        tokens[:, 0] = CLS
        tokens[:, -1] = SEP
        rows.append((tokens.to(device), category.to(device)))
    return rows


def build_model(device):
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        num_hidden_layers=24,
        num_attention_heads=8,
        intermediate_size=2048,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=CATEGORIES,
        problem_type="single_label_classification",
    )
    model = BertForSequenceClassification(config)
    return model.to(device).train()


def parameter_groups(model):
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name:
            plain.append(parameter)
        else:
            decayed.append(parameter)
    return [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]


def main():
    torch.manual_seed(29)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    rows = inventory(device)
    model = build_model(device)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=3e-5, fused=True)
    losses = []

    def train_step(i):
        tokens, category = rows[i % BATCHES]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=category).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().float())

    step = 0
    for _ in range(WARMUP):
        train_step(step)
        step += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            train_step(step)
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK * 1e6)

    first = float(torch.stack(losses[:BATCHES]).mean())
    weights = float(torch.stack([p.detach().norm() for p in model.parameters()]).norm())
    print(json.dumps({"program": "hf_museum_labels", "steps": step,
                      "us": statistics.median(times), "result": [first, weights]}))


if __name__ == "__main__":
    main()
