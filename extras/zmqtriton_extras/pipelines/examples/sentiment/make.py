"""Makes friendly and unfriendly sentences, their vocabulary, and weights that tell them apart."""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
MODELS = HERE / "models"
for model in ("tokenizer", "classifier"):
    sys.path.insert(0, str(MODELS / model / "1"))

from network import counts  # noqa: E402
from words import Vocabulary, split  # noqa: E402

KIND = "good great wonderful lovely fine excellent pleasant beautiful friendly fast tasty".split()
UNKIND = "bad awful terrible boring poor horrible dull ugly rude slow bland".split()
THINGS = "film meal hotel service book room staff story song place trip waiter music".split()
HOW = "really very quite so rather truly".split()
LOVE = "love loved like liked enjoyed recommend".split()
HATE = "hate hated dislike disliked regret avoid".split()
LENGTH = 16
STEPS = 400


def sentence(is_kind, random):
    """Return a sentence; every fourth one denies the contrary of what it means."""
    denies = random.random() < 0.25
    means_well = is_kind != denies
    thing, how = random.choice(THINGS), random.choice(HOW)
    if random.random() < 0.6:
        word = random.choice(KIND if means_well else UNKIND)
        return f"the {thing} was {'not' if denies else how} {word}"
    word = random.choice(LOVE if means_well else HATE)
    return f"i {'do not' if denies else how} {word} this {thing}"


def train(x, is_kind):
    """Return the weights of a logistic regression, by gradient descent."""
    weights, bias = np.zeros(x.shape[1]), 0.0
    for _ in range(STEPS):
        error = 1 / (1 + np.exp(-(x @ weights + bias))) - is_kind
        weights -= 2.0 * (x.T @ error / len(x) + 1e-4 * weights)
        bias -= 2.0 * error.mean()
    return weights, bias


def main():
    random = np.random.default_rng(1)
    is_kind = np.arange(2000) % 2
    sentences = [sentence(bool(kind), random) for kind in is_kind]
    words = sorted({word for text in sentences for word in split(text)})
    tokenizer = MODELS / "tokenizer" / "1"
    (tokenizer / "vocabulary.txt").write_text("\n".join(["[PAD]", "[UNK]", *words]) + "\n")
    recipe = {"vocabulary": "vocabulary.txt", "max_seq_len": LENGTH}
    (tokenizer / "recipe.json").write_text(json.dumps(recipe) + "\n")

    vocabulary = Vocabulary.read(tokenizer / "recipe.json")
    ids, mask = vocabulary.encode(sentences)
    denial = vocabulary.numbers["not"]
    weights, bias = train(counts(ids, mask, len(vocabulary.numbers), denial), is_kind)
    target = MODELS / "classifier" / "1" / "weights.npz"
    np.savez(target, weights=weights.astype(np.float32), bias=np.float32(bias), denial=denial)
    print(f"{len(sentences)} sentences of {len(words)} words seen; weights in {target}")


if __name__ == "__main__":
    main()
