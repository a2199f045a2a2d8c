"""Answer a few chats at once with a small Llama (random weights), token by token."""

import json
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

DEVICE = "cuda"
CHATS, PROMPT, NEW_TOKENS = 4, 96, 200
WARMUP = 40
VOCAB = 8192


def build_model():
    torch.manual_seed(77)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=14,
        num_attention_heads=12,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()


@torch.inference_mode()
def reply(model, prompt):
    times = []
    out = model(input_ids=prompt, use_cache=True)
    token = out.logits[:, -1:].argmax(-1)
    cache = out.past_key_values
    first = out.logits[:, -1].float()
    replies = [token]
    for _ in range(NEW_TOKENS):
        start = time.perf_counter()
        out = model(input_ids=token, past_key_values=cache, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        cache = out.past_key_values
        replies.append(token)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return torch.cat(replies, 1), first, times


def main():
    model = build_model()
    generator = torch.Generator().manual_seed(78)
    prompt = torch.randint(2, VOCAB, (CHATS, PROMPT), generator=generator).to(DEVICE)
    tokens, first, times = reply(model, prompt)
    us = statistics.median(times[WARMUP:]) * 1e6
    print(f"{CHATS * 1e6 / us:.0f} tokens/s; first reply {tokens[0, :8].tolist()}")
    result = [first.std().item(), first.max().item(), float(tokens.shape[1])]
    print(
        json.dumps({"program": "hf_reply_decode", "steps": len(times), "us": us, "result": result})
    )


if __name__ == "__main__":
    main()
