"""Route helpdesk tickets to a team with a small BERT (random weights, synthetic tickets)."""
import json
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

SEED = 31
N_TICKETS = 2048
BATCH = 128
MAX_LENGTH = 512
TEAMS = 12
CLS, SEP, PAD = 101, 102, 0


def synthetic_tickets(rng):
    """Token ids of short user reports, most of them of 20 to 70 tokens."""
    tickets = []
    for _ in range(N_TICKETS):
        length = int(np.clip(rng.lognormal(3.6, 0.35), 8, 120))
        words = rng.zipf(1.3, size=length) % 8000 + 200
        tickets.append([CLS, *words.tolist(), SEP])
    return tickets


class TicketDataset:
    """Encoded tickets as rectangular arrays, ready for the GPU."""

    def __init__(self, tickets, max_length, device):
        ids = np.full((len(tickets), max_length), PAD, dtype=np.int64)
        mask = np.zeros((len(tickets), max_length), dtype=np.int64)
        for row, ticket in enumerate(tickets):
            ids[row, :len(ticket)] = ticket
            mask[row, :len(ticket)] = 1
        self.lengths = mask.sum(axis=1)
        self.ids = torch.from_numpy(ids).to(device)
        self.mask = torch.from_numpy(mask).to(device)

    def __len__(self):
        return len(self.lengths)

    def batch(self, number, size):
        first = number * size % (len(self) - size + 1)
        rows = slice(first, first + size)
        return {"input_ids": self.ids[rows], "attention_mask": self.mask[rows]}


def build_model(device):
    config = BertConfig(
        vocab_size=8192 + 200,
        hidden_size=768,
        num_hidden_layers=8,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=MAX_LENGTH,
        num_labels=TEAMS,
        initializer_range=0.05,
    )
    torch.manual_seed(SEED)
    model = BertForSequenceClassification(config)
    return model.to(device, torch.bfloat16).eval()


class Router:
    def __init__(self, model, dataset):
        self.model = model
        self.dataset = dataset
        self.done = 0
        self.team_load = torch.zeros(TEAMS, device=model.device)
        self.confidence = torch.zeros((), device=model.device)

    @torch.inference_mode()
    def step(self):
        batch = self.dataset.batch(self.done, BATCH)
        logits = self.model(**batch).logits.float()
        probs = logits.softmax(dim=-1)
        self.team_load += probs.mean(dim=0)
        self.confidence += probs.amax(dim=-1).mean()
        self.done += 1


def main():
    device = torch.device("cuda")
    rng = np.random.default_rng(SEED)
    dataset = TicketDataset(synthetic_tickets(rng), MAX_LENGTH, device)
    router = Router(build_model(device), dataset)

    for _ in range(6):
        router.step()
    torch.cuda.synchronize()

    per_step = []
    for _ in range(6):
        start = time.perf_counter()
        for _ in range(5):
            router.step()
        torch.cuda.synchronize()
        per_step.append((time.perf_counter() - start) / 5)

    load = router.team_load / router.done
    print("busiest team:", int(load.argmax()), " median length:", int(np.median(dataset.lengths)))
    print(json.dumps({
        "program": "hf_tickets",
        "steps": router.done,
        "us": float(np.median(per_step)) * 1e6,
        "result": [(router.confidence / router.done).item(), load.square().sum().sqrt().item()],
    }))


if __name__ == "__main__":
    main()
