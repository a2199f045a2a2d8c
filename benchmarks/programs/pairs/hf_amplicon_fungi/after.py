"""Embeds ITS2 amplicons of a soil survey with a nucleotide BERT and assigns each to the nearest reference taxon."""
import json
import time

import numpy as np
import torch
from transformers import BertConfig, BertModel

NAME = "hf_amplicon_fungi"
SEED = 411
KMER = 3
SPECIAL = 4
VOCAB = SPECIAL + 4 ** KMER
READ_LEN = 256
READS_PER_BATCH = 128
BATCHES = 6
TAXA = 512
DEVICE = torch.device("cuda")


def simulate_reads(rng, n_reads, n_species=40):
    """Reads are noisy copies of a handful of species' barcodes."""
    barcodes = rng.integers(0, 4, size=(n_species, READ_LEN + KMER - 2))
    species = rng.integers(0, n_species, size=n_reads)
    reads = barcodes[species]
    errors = rng.random(reads.shape) < 0.02
    reads = np.where(errors, rng.integers(0, 4, size=reads.shape), reads)
    return reads, species


def encode_kmers(reads):
    """Overlapping k-mers to token ids, with a [CLS] token in front."""
    n, length = reads.shape
    tokens = np.zeros((n, length - KMER + 1), dtype=np.int64)
    for j in range(KMER):
        tokens = tokens * 4 + reads[:, j:length - KMER + 1 + j]
    cls = np.full((n, 1), 1, dtype=np.int64)
    return np.concatenate([cls, tokens + SPECIAL], axis=1)


def build_encoder():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=1024,
        num_hidden_layers=12,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=READ_LEN,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    model = BertModel(config, add_pooling_layer=False)
    return model.to(DEVICE, dtype=torch.bfloat16).eval()


class TaxonIndex:
    """Unit vectors of reference taxa; assignment by cosine similarity."""

    def __init__(self, generator, dim):
        refs = torch.randn(TAXA, dim, generator=generator)
        refs = torch.nn.functional.normalize(refs, dim=1)
        self.refs = refs.to(DEVICE, dtype=torch.bfloat16)

    def assign(self, embeddings):
        unit = torch.nn.functional.normalize(embeddings, dim=1)
        similarity = unit @ self.refs.T
        return similarity.max(dim=1)


def embed_batch(model, tokens):
    hidden = model(input_ids=tokens).last_hidden_state
    return hidden.mean(dim=1)


class Survey:
    """Accumulates counts per taxon and the mean confidence."""

    def __init__(self):
        self.counts = torch.zeros(TAXA, device=DEVICE)
        self.confidence = torch.zeros((), device=DEVICE)
        self.norm = torch.zeros((), device=DEVICE)
        self.reads = 0

    def add(self, embeddings, score, taxon):
        self.counts.index_add_(0, taxon, torch.ones_like(score, dtype=torch.float32))
        self.confidence += score.float().sum()
        self.norm += embeddings.float().norm(dim=1).sum()
        self.reads += taxon.shape[0]


def main():
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED + 1)

    reads, _ = simulate_reads(rng, READS_PER_BATCH * BATCHES)
    tokens = torch.from_numpy(encode_kmers(reads)).to(DEVICE)
    batches = list(tokens.split(READS_PER_BATCH))

    model = build_encoder()
    index = TaxonIndex(generator, model.config.hidden_size)

    def step(i, survey):
        embeddings = embed_batch(model, batches[i % BATCHES])
        score, taxon = index.assign(embeddings)
        survey.add(embeddings, score, taxon)

    with torch.inference_mode():
        warm = Survey()
        for i in range(BATCHES):
            step(i, warm)
        torch.cuda.synchronize()

        survey = Survey()
        times, steps = [], 0
        for _ in range(8):
            start = time.perf_counter()
            for i in range(BATCHES):
                step(i, survey)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / BATCHES)
            steps += BATCHES

    result = [
        float(survey.norm) / survey.reads,
        float(survey.counts.sum()) / survey.reads,
    ]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
