"""A transformer of one layer in numpy: what the model runs, and what `train.py` trains."""

import numpy as np

#: Characters that it looks at, numbers for each character, and heads of attention.
CONTEXT, SIZE, HEADS = 32, 96, 4


def scores_of(weights: dict[str, np.ndarray], tokens: np.ndarray) -> tuple[np.ndarray, dict]:
    """Return the scores of the next token after each of `tokens`, and what the training needs."""
    w, (count, length) = weights, tokens.shape
    x = w["token"][tokens] + w["place"][:length]
    q, k, v = (split(x @ w[name]) for name in ("query", "key", "value"))
    logits = q @ k.swapaxes(2, 3) / np.sqrt(SIZE // HEADS)
    logits[:, :, np.triu(np.ones((length, length), bool), 1)] = -1e9
    attention = np.exp(logits - logits.max(-1, keepdims=True))
    attention /= attention.sum(-1, keepdims=True)
    mixed = (attention @ v).swapaxes(1, 2).reshape(count, length, SIZE)
    y = x + mixed @ w["mix"]
    hidden = np.maximum(0, y @ w["up"])
    z = y + hidden @ w["down"]
    return z @ w["out"], {name: value for name, value in locals().items() if name != "weights"}


def split(x: np.ndarray) -> np.ndarray:
    """Return the parts of each head: (batch, head, place, number)."""
    return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)


def join(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], SIZE)
