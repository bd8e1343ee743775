"""Train the transformer until it knows the Zen of Python by heart: 15 seconds of one core."""

import codecs
import contextlib
import io
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # several would wait for each other

import numpy as np
from network import CONTEXT, HEADS, SIZE, join, scores_of, split

with contextlib.redirect_stdout(io.StringIO()):
    import this
text = codecs.decode(this.s, "rot13") + "\n"
letters = "".join(sorted(set(text)))
# its first words follow its last ones
tokens = np.array([letters.index(letter) for letter in text + text[:CONTEXT]])
lines = [0, *(at + 1 for at, letter in enumerate(text[:-1]) if letter == "\n")]
rng = np.random.default_rng(0)


def matrix(rows: int, columns: int) -> np.ndarray:
    return rng.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)


weights = {
    "token": matrix(len(letters), SIZE),
    "place": matrix(CONTEXT, SIZE),
    "out": matrix(SIZE, len(letters)),
    "up": matrix(SIZE, 4 * SIZE),
    "down": matrix(4 * SIZE, SIZE),
} | {name: matrix(SIZE, SIZE) for name in ("query", "key", "value", "mix")}


def step(inputs: np.ndarray, wanted: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Return the loss, and how it changes with each weight."""
    scores, at = scores_of(weights, inputs)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    row, column = np.indices(wanted.shape)
    loss = -np.log(p[row, column, wanted] + 1e-9).mean()
    p[row, column, wanted] -= 1
    d_scores, w = p / wanted.size, weights
    d_z = d_scores @ w["out"].T
    d_hidden = (d_z @ w["down"].T) * (at["hidden"] > 0)
    d_y = d_z + d_hidden @ w["up"].T
    d_mixed = split(d_y @ w["mix"].T)
    d_attention = d_mixed @ at["v"].swapaxes(2, 3)
    a = at["attention"]
    d_logits = a * (d_attention - (d_attention * a).sum(-1, keepdims=True))
    d_logits /= np.sqrt(SIZE // HEADS)
    d_q, d_k = join(d_logits @ at["k"]), join(d_logits.swapaxes(2, 3) @ at["q"])
    d_v = join(a.swapaxes(2, 3) @ d_mixed)
    d_x = d_y + d_q @ w["query"].T + d_k @ w["key"].T + d_v @ w["value"].T
    by = {name: np.zeros_like(value) for name, value in w.items()}
    np.add.at(by["token"], inputs, d_x)
    by["place"] += d_x.sum(0)
    for name, before, after in (
        ("out", at["z"], d_scores), ("down", at["hidden"], d_z), ("up", at["y"], d_hidden),
        ("mix", at["mixed"], d_y), ("query", at["x"], d_q), ("key", at["x"], d_k),
        ("value", at["x"], d_v),
    ):  # fmt: skip
        by[name] = np.tensordot(before, after, ((0, 1), (0, 1)))
    return float(loss), by


mean = {name: np.zeros_like(value) for name, value in weights.items()}
square = {name: np.zeros_like(value) for name, value in weights.items()}
for turn in range(1, 801):
    starts = rng.integers(0, len(text), 24)
    starts[:12] = rng.choice(lines, 12)  # a chat begins with the first words of a line
    parts = tokens[starts[:, None] + np.arange(CONTEXT + 1)]
    loss, by = step(parts[:, :-1], parts[:, 1:])
    for name, d in by.items():  # Adam
        mean[name] = 0.9 * mean[name] + 0.1 * d
        square[name] = 0.99 * square[name] + 0.01 * d * d
        weights[name] -= 2e-3 * mean[name] / (np.sqrt(square[name]) + 1e-6)
    if turn % 200 == 0:
        print(f"{turn} steps: loss {loss:.3f}")
np.savez(Path(__file__).parent / "weights.npz", letters=letters, **weights)
