"""Describes photographs of hoard coins by a vocabulary of visual words over ViT patches and finds the likeliest mint."""
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import ViTConfig, ViTModel

NAME = "hf_coin_hoards"
SEED = 1066
IMAGE = 224
COINS_PER_BATCH = 128
BATCHES = 6
WORDS = 6144
MINTS = 400
DEVICE = torch.device("cuda")


def photograph_coins(generator, count):
    """Discs with a few embossed waves, lit from one side, on a grey cloth."""
    axis = torch.linspace(-1, 1, IMAGE, device=DEVICE)
    y, x = axis[:, None], axis[None, :]
    disc = ((x * x + y * y) < 0.8).float()
    waves = torch.randn(count, 6, 4, device=DEVICE, generator=generator)
    relief = torch.zeros(count, IMAGE, IMAGE, device=DEVICE)
    for k in range(6):
        fx, fy, phase, height = (waves[:, k, i, None, None] for i in range(4))
        relief += height * torch.sin(12 * fx * x + 12 * fy * y + 3 * phase)
    tint = torch.rand(count, 3, 1, 1, device=DEVICE, generator=generator)
    noise = torch.randn(count, 3, IMAGE, IMAGE, device=DEVICE, generator=generator)
    images = (0.5 + 0.5 * tint) * (0.4 * relief[:, None] + 0.5) * disc + 0.3 * (1 - disc) + 0.1 * noise
    return ((images - 0.5) / 0.5).to(torch.bfloat16)


def build_backbone():
    config = ViTConfig(
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        image_size=IMAGE,
        patch_size=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    return ViTModel(config, add_pooling_layer=False).to(DEVICE, dtype=torch.bfloat16).eval()


class PatchFeatures:
    """Patch tokens of the backbone, centred and scaled to unit length."""

    def __init__(self, backbone):
        self.backbone = backbone
        self.centre = torch.zeros(backbone.config.hidden_size, device=DEVICE)

    def fit(self, images):
        tokens = self.backbone(pixel_values=images).last_hidden_state[:, 1:]
        self.centre = tokens.float().mean(dim=(0, 1))

    def __call__(self, images):
        tokens = self.backbone(pixel_values=images).last_hidden_state[:, 1:]
        return F.normalize(tokens - self.centre, dim=-1)


class VisualVocabulary:
    """Words are directions among the patches; a coin is the histogram of its nearest words."""

    def __init__(self, features, images, generator):
        tokens = features(images).flatten(0, 1)
        chosen = torch.randperm(tokens.shape[0], device=DEVICE, generator=generator)[:WORDS]
        partner = torch.randperm(tokens.shape[0], device=DEVICE, generator=generator)[:WORDS]
        self.words = F.normalize(tokens[chosen] + 0.5 * tokens[partner], dim=-1)
        self.rarity = torch.ones(WORDS, device=DEVICE)

    def assign(self, patches):
        coins, count, dim = patches.shape
        similarity = patches.reshape(coins * count, dim) @ self.words.T
        best, word = similarity.max(dim=1)
        return best.view(coins, count), word.view(coins, count)

    def histogram(self, best, word):
        bag = torch.zeros(word.shape[0], WORDS, device=DEVICE)
        bag.scatter_add_(1, word, best.clamp(min=0.0))
        return F.normalize(bag * self.rarity, dim=1)


class MintCatalogue:
    def __init__(self, vocabulary, features, images, generator):
        best, word = vocabulary.assign(features(images))
        bags = vocabulary.histogram(best, word)
        mixing = torch.rand(MINTS, bags.shape[0], device=DEVICE, generator=generator) ** 4
        self.bags = F.normalize(mixing @ bags, dim=1)

    def match(self, bag):
        return (bag @ self.bags.T).max(dim=1)


class HoardReport:
    def __init__(self):
        self.similarity = torch.zeros((), device=DEVICE)
        self.usage = torch.zeros(WORDS, device=DEVICE)
        self.score = torch.zeros((), device=DEVICE)
        self.coins = 0

    def add(self, best, bag, score):
        self.similarity += best.mean(dim=1).sum()
        self.usage += bag.sum(dim=0)
        self.score += score.sum()
        self.coins += best.shape[0]

    def effective_words(self):
        share = self.usage / self.usage.sum()
        return float(1.0 / (share * share).sum())


def main():
    torch.manual_seed(SEED)
    generator = torch.Generator(device=DEVICE).manual_seed(SEED + 1)
    batches = [photograph_coins(generator, COINS_PER_BATCH) for _ in range(BATCHES)]
    survey = photograph_coins(generator, COINS_PER_BATCH)

    with torch.inference_mode():
        features = PatchFeatures(build_backbone())
        features.fit(survey)
        vocabulary = VisualVocabulary(features, survey, generator)
        mints = MintCatalogue(vocabulary, features, survey, generator)

        def step(i, report):
            best, word = vocabulary.assign(features(batches[i % BATCHES]))
            bag = vocabulary.histogram(best, word)
            score, _ = mints.match(bag)
            report.add(best, bag, score)

        warm = HoardReport()
        for i in range(2 * BATCHES):
            step(i, warm)
        torch.cuda.synchronize()

        report = HoardReport()
        times = []
        for _ in range(12):
            start = time.perf_counter()
            for i in range(BATCHES):
                step(i, report)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / BATCHES)

    result = [float(report.similarity) / report.coins, report.effective_words(), float(report.score) / report.coins]
    print(json.dumps({"program": NAME, "steps": 12 * BATCHES, "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
