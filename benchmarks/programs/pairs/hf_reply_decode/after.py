"""Answer a few chats at once with a small Llama (random weights), token by token."""

import json
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

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


class Decoder:
    """One token of the model with a cache of fixed size, captured as a CUDA graph."""

    def __init__(self, model, cache, token, start):
        self.model, self.cache = model, cache
        self.token = token.clone()
        self.position = torch.tensor([start], device=DEVICE)
        self.slots = torch.arange(PROMPT + NEW_TOKENS + 8, device=DEVICE)
        self.graph = torch.cuda.CUDAGraph()

    def forward(self):
        mask = (self.slots <= self.position).expand(CHATS, 1, 1, -1)
        out = self.model(
            input_ids=self.token,
            attention_mask=mask,
            position_ids=self.position[None].expand(CHATS, 1),
            cache_position=self.position,
            past_key_values=self.cache,
            use_cache=True,
        )
        self.token.copy_(out.logits[:, -1:].argmax(-1))
        self.position += 1

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.forward()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self.graph):
            self.forward()


@torch.inference_mode()
def reply(model, prompt):
    times = []
    cache = StaticCache(config=model.config, max_cache_len=PROMPT + NEW_TOKENS + 8)
    out = model(input_ids=prompt, past_key_values=cache, use_cache=True)
    token = out.logits[:, -1:].argmax(-1)
    first = out.logits[:, -1].float()
    decoder = Decoder(model, cache, token, PROMPT)
    decoder.capture()
    replies = [token, decoder.token.clone()]
    for _ in range(NEW_TOKENS - 1):
        start = time.perf_counter()
        decoder.graph.replay()
        replies.append(decoder.token.clone())
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
