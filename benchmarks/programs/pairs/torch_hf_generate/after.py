"""Text generation with a randomly initialised GPT-2 from transformers."""

import json
import os
import statistics
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import GPT2Config, GPT2LMHeadModel

DEVICE = "cuda"
VOCAB = 5000
DIM = 768
HEADS = 12
LAYERS = 8
BATCH = 8
PROMPT = 448
NEW_TOKENS = 64
WARMUP = 8
BLOCK = 8


@torch.inference_mode()
def generate(model, prompt):
    """Greedy decoding; gives the tokens, a score for each step and times of blocks."""
    tokens, fresh, past = prompt, prompt, None
    scores, times = [], []
    start = time.perf_counter()
    for i in range(NEW_TOKENS):
        if i >= WARMUP and (i - WARMUP) % BLOCK == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            if i > WARMUP:
                times.append((now - start) / BLOCK)
            start = now
        out = model(input_ids=fresh, past_key_values=past, use_cache=True)
        past = out.past_key_values
        logits = out.logits[:, -1].float()
        scores.append(logits.logsumexp(-1).mean())
        fresh = logits.argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, fresh], dim=1)
    torch.cuda.synchronize()
    return tokens, scores, times


def main():
    torch.manual_seed(11)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=1024,
        n_embd=DIM,
        n_head=HEADS,
        n_layer=LAYERS,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config).to(DEVICE).half().eval()
    prompt = torch.randint(0, VOCAB, (BATCH, PROMPT)).to(DEVICE)
    _, scores, times = generate(model, prompt)
    again, _, more = generate(model, prompt)
    print(f"{again.shape[1]} tokens a sequence, last ones {again[0, -6:].tolist()}")
    us = statistics.median(times + more) * 1e6
    print(f"{BATCH / us * 1e6:.0f} tokens/s")
    out = {
        "program": "torch_hf_generate",
        "steps": 2 * NEW_TOKENS,
        "us": us,
        "result": [scores[0].item(), torch.stack(scores[:8]).mean().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
