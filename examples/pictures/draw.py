"""Draw a digit out of noise, and watch it appear: a diffusion model in numpy and scikit-learn."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import joblib
import numpy as np
from PIL.Image import Image, Resampling, fromarray
from pydantic import Field

from zmqtriton import model

#: Part of a picture that is left after each step of noise.
SIGNAL = np.cumprod(1 - np.linspace(1e-3, 0.14, 60))


def features(pictures: np.ndarray, when: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """Return what the network sees: pictures, how noisy they are, and what they show."""
    angles = when[:, None] / len(SIGNAL) * np.pi * np.array([0.5, 1, 2, 4])
    return np.hstack([pictures, np.sin(angles), np.cos(angles), np.eye(10)[digits]])


@model(instances=2, examples=[{"digit": 3, "seed": 1}, {"digit": 8, "seed": 1, "previews": 10}])
class Draw:
    """Draw a digit; with previews, a picture comes after each few steps."""

    def __init__(self) -> None:
        self.network = joblib.load(Path(__file__).parent / "network.joblib")

    def __call__(
        self,
        digit: Annotated[int, Field(ge=0, le=9)],
        seed: int = 0,
        previews: Annotated[int, Field(ge=1, le=60)] = 5,
        size: Annotated[int, Field(ge=8, le=1024)] = 240,
    ) -> Iterator[Image]:
        rng = np.random.default_rng(abs(seed))
        picture = rng.normal(size=(1, 64))
        shown = set(np.linspace(len(SIGNAL) - 1, 0, previews + 1).astype(int)[1:])
        for step in range(len(SIGNAL) - 1, -1, -1):
            seen = features(picture, np.array([step]), np.array([digit]))
            clean, signal = self.network.predict(seen).clip(-1, 1), SIGNAL[step]
            noise = (picture - np.sqrt(signal) * clean) / np.sqrt(1 - signal)
            before = SIGNAL[step - 1] if step else 1.0
            kept = (1 - before) / (1 - signal) * (1 - signal / before)
            mean = np.sqrt(before) * clean + np.sqrt(max(1 - before - kept, 0)) * noise
            picture = mean + np.sqrt(kept) * rng.normal(size=picture.shape)
            if step in shown:
                yield as_image(picture.clip(-1, 1), size)


def as_image(picture: np.ndarray, size: int) -> Image:
    ink = ((1 - picture.reshape(8, 8)) * 127.5).astype(np.uint8)
    return fromarray(ink).resize((size, size), Resampling.BICUBIC)
