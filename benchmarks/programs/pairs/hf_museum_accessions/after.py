"""Embeddings of museum accession notes for a similarity index."""
import json
import time
import unicodedata

import numpy as np
import torch
from transformers import BertConfig, BertModel

torch.manual_seed(1753)
DEVICE = torch.device("cuda")

NOTES_PER_STEP = 96
WORDS = 60
WINDOW = 192
LEXICON = 6000
WARMUP = 8
BLOCKS = 8
BLOCK_STEPS = 5
STEPS = WARMUP + BLOCKS * BLOCK_STEPS

ONSETS = ["b", "br", "c", "d", "f", "g", "gl", "h", "l", "m", "n", "p", "pr", "r", "s", "st", "t", "tr", "v", "z"]
NUCLEI = ["a", "e", "i", "o", "u", "ai", "ea", "ou", "é", "ö"]
CODAS = ["", "", "n", "r", "l", "s", "st", "nd", "m", "ck"]


def make_lexicon(rng):
    words = set()
    while len(words) < LEXICON:
        parts = []
        for _ in range(int(rng.integers(2, 5))):
            parts.append(ONSETS[rng.integers(len(ONSETS))] + NUCLEI[rng.integers(len(NUCLEI))]
                         + CODAS[rng.integers(len(CODAS))])
        words.add("".join(parts))
    return sorted(words)


def make_notes(rng, lexicon):
    """Accession notes: words by a Zipf law, some capitalised or followed by punctuation."""
    weight = 1.0 / (np.arange(len(lexicon)) + 4.0)
    chosen = rng.choice(len(lexicon), size=(STEPS * NOTES_PER_STEP, WORDS), p=weight / weight.sum())
    shuffled = rng.permutation(len(lexicon))
    forms = [[word, word, word.capitalize(), word + ",", word + "."] for word in lexicon]
    form = rng.integers(0, 5, size=chosen.shape)
    return [" ".join(forms[shuffled[w]][f] for w, f in zip(row, shape))
            for row, shape in zip(chosen.tolist(), form.tolist())]


class NoteTokenizer:
    """Greedy longest-match word pieces, accents removed."""

    def __init__(self):
        plain = sorted({onset + nucleus for onset in ONSETS for nucleus in ("a", "e", "i", "o", "u", "ai", "ea")})
        letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
        endings = [coda for coda in dict.fromkeys(CODAS) if len(coda) > 1]
        heads = letters + plain
        tails = ["##" + piece for piece in letters + plain + endings]
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ",", "."] + heads + tails
        self.vocab = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
        self.known = {}

    def normalise(self, word):
        decomposed = unicodedata.normalize("NFD", word.lower())
        return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")

    def pieces(self, word):
        text = self.normalise(word)
        tail = []
        while text and text[-1] in ",.":
            tail.append(self.vocab[text[-1]])
            text = text[:-1]
        ids, start = [], 0
        while start < len(text):
            end = len(text)
            number = None
            while start < end:
                piece = text[start:end]
                if start > 0:
                    piece = "##" + piece
                number = self.vocab.get(piece)
                if number is not None:
                    break
                end -= 1
            if number is None:
                return [self.vocab["[UNK]"]] + tail
            ids.append(number)
            start = end
        return ids + tail

    def encode(self, note):
        ids = [self.vocab["[CLS]"]]
        for word in note.split():
            known = self.known.get(word)
            if known is None:
                known = self.known[word] = self.pieces(word)
            ids.extend(known)
            if len(ids) >= WINDOW - 1:
                break
        ids = ids[:WINDOW - 1] + [self.vocab["[SEP]"]]
        return ids + [self.vocab["[PAD]"]] * (WINDOW - len(ids))


def main():
    rng = np.random.default_rng(1753)
    notes = make_notes(rng, make_lexicon(rng))
    tokenizer = NoteTokenizer()
    config = BertConfig(vocab_size=len(tokenizer.vocab), hidden_size=1024, num_hidden_layers=10,
                        num_attention_heads=16, intermediate_size=4096, max_position_embeddings=WINDOW)
    model = BertModel(config, add_pooling_layer=False).to(DEVICE, torch.bfloat16).eval()
    index = torch.zeros(len(notes), config.hidden_size, dtype=torch.bfloat16, device=DEVICE)

    @torch.inference_mode()
    def embed(step):
        begin = step * NOTES_PER_STEP
        rows = [tokenizer.encode(note) for note in notes[begin:begin + NOTES_PER_STEP]]
        ids = torch.tensor(rows, dtype=torch.int64).pin_memory().to(DEVICE, non_blocking=True)
        hidden = model(input_ids=ids).last_hidden_state
        pooled = hidden.mean(dim=1)
        index[begin:begin + NOTES_PER_STEP] = torch.nn.functional.normalize(pooled, dim=1)

    done = 0
    for _ in range(WARMUP):
        embed(done)
        done += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            embed(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    median = float(np.median(times)) * 1e6
    centre = index.float().mean(dim=0)
    result = [centre.norm().item(), index.float().abs().mean().item(), (index.float() @ centre).std().item()]
    print(json.dumps({"program": "hf_museum_accessions", "steps": done, "us": round(median, 1),
                      "result": [round(value, 6) for value in result]}))


if __name__ == "__main__":
    main()
