"""Search Python's documentation by meaning, and tell which module a text is about."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import joblib
import numpy as np
from pydantic import Field

from zmqtriton import model

EMBED, JUDGE, VECTORS, NAMES, TEXTS = joblib.load(Path(__file__).parent / "index.joblib")


@dataclass
class Hit:
    name: str
    text: str
    likeness: float


@model(batch=32, examples=[{"query": "wait for several threads"}, {"query": "parse a date"}])
def search(query: list[str], limit: Annotated[int, Field(ge=1, le=50)] = 3) -> list[list[Hit]]:
    """Find what the standard library has for a task, said in your words."""
    likenesses = EMBED.transform(query) @ VECTORS.T
    return [[hit(at, row[at]) for at in row.argsort()[::-1][:limit]] for row in likenesses]


def hit(at: int, likeness: float) -> Hit:
    summary = " ".join(TEXTS[at].split("\n\n")[0].split())
    return Hit(NAMES[at], summary, round(float(likeness), 3))


@model(batch=32, examples=[{"text": "parse command line options"}])
def module_of(text: list[str]) -> list[dict[str, float]]:
    """Tell the three most likely modules that a text is about, with their probabilities."""
    probabilities = JUDGE.predict_proba(EMBED.transform(text))
    best = np.argsort(probabilities)[:, ::-1][:, :3]
    return [
        {str(JUDGE.classes_[at]): round(float(row[at]), 3) for at in three}
        for row, three in zip(probabilities, best)
    ]
