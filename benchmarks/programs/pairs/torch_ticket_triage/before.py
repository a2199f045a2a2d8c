# Route customer tickets to a team: a small text encoder trained on word pieces.
import json
import random
import re
import time
import unicodedata

import torch
from torch import nn
from torch.utils.data import DataLoader

device = "cuda"
N_TICKETS, WORDS, TEAMS = 1536, 220, 24
BATCH, STEPS, WARMUP = 128, 72, 16
MAX_LEN = 384
PAD, UNK = 0, 1


def make_corpus(seed):
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfglmnprst" for b in ("a", "e", "i", "o", "ou", "é")]
    lexicon = ["".join(rng.choices(syllables, k=rng.randint(1, 5))) for _ in range(6000)]
    pieces = sorted(set(syllables) | set(lexicon[:1500]))
    vocab = {p: i + 2 for i, p in enumerate(pieces)}
    vocab |= {"##" + p: len(vocab) + 2 + i for i, p in enumerate(pieces)}
    tickets = []
    for _ in range(N_TICKETS):
        n = rng.randint(WORDS // 2, WORDS)
        words = [rng.choice(lexicon) for _ in range(n)]
        tickets.append((" ".join(words).capitalize() + ".", rng.randrange(TEAMS)))
    return tickets, vocab


class Tokenizer:
    def __init__(self, vocab):
        self.vocab = vocab
        self.split = re.compile(r"\w+|[^\w\s]")

    def word(self, word):
        ids, start = [], 0
        while start < len(word):
            end = len(word)
            while end > start:
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                if piece in self.vocab:
                    break
                end -= 1
            if end == start:
                return [UNK]
            ids.append(self.vocab[piece])
            start = end
        return ids

    def encode(self, text):
        text = unicodedata.normalize("NFC", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Cc")
        return [i for w in self.split.findall(text) for i in self.word(w)][:MAX_LEN]


class Encoder(nn.Module):
    def __init__(self, n_vocab, dim=256, layers=4):
        super().__init__()
        self.emb = nn.Embedding(n_vocab, dim, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(
            dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, TEAMS)

    def forward(self, ids):
        return self.out(self.body(self.emb(ids)).mean(1))


def main():
    torch.manual_seed(3)
    tickets, vocab = make_corpus(3)
    tok = Tokenizer(vocab)

    def collate(batch):
        rows = [tok.encode(text) for text, _ in batch]
        ids = torch.full((len(rows), MAX_LEN), PAD)
        for r, row in enumerate(rows):
            ids[r, : len(row)] = torch.tensor(row)
        return ids, torch.tensor([team for _, team in batch])

    order = [tickets[(7 * i) % N_TICKETS] for i in range(BATCH * (STEPS + WARMUP))]
    loader = DataLoader(order, BATCH, num_workers=2, collate_fn=collate, pin_memory=True)
    model = Encoder(len(vocab) + 2).to(device)
    optim = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    losses = []
    for n, (ids, team) in enumerate(loader):
        if n == WARMUP:
            torch.cuda.synchronize()
            t0 = time.time()
        ids, team = ids.to(device, non_blocking=True), team.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(ids), team)
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.detach())
        if n % 16 == 0:
            print("step", n, "loss", round(loss.item(), 4), flush=True)
    torch.cuda.synchronize()
    us = (time.time() - t0) / STEPS * 1e6
    result = [float(losses[i]) for i in (0, 1, 5)]
    print(json.dumps(dict(program="torch_ticket_triage", steps=len(losses), us=us, result=result)))


if __name__ == "__main__":
    main()
