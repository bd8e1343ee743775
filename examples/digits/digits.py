"""Which digit is written here? Pictures of any size, read by a support vector machine."""

from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
from PIL import ImageOps
from PIL.Image import Image

from zmqtriton import Failed, model


@dataclass
class Digit:
    digit: int
    probability: float


@model(batch=64, examples=[{"image": Path(__file__).parent / "digit.png"}])
class Digits:
    """Read a handwritten digit, dark on light."""

    def __init__(self) -> None:
        self.machine = joblib.load(Path(__file__).parent / "digits.joblib")

    def __call__(self, image: list[Image]) -> list[Digit]:
        rows = np.stack([prepare(n, each) for n, each in enumerate(image)])
        probabilities = self.machine.predict_proba(rows)
        return [Digit(int(row.argmax()), round(float(row.max()), 4)) for row in probabilities]


def prepare(n: int, image: Image) -> np.ndarray:
    """Return the ink in 8 times 8 fields, from 0 to 16, as in the data of the training."""
    ink = ImageOps.autocontrast(ImageOps.invert(image.convert("L")))
    box = ink.point(lambda value: 255 * (value > 96)).getbbox()
    if box is None:
        raise Failed(n, "nothing is written there")
    square = ImageOps.pad(ink.crop(box), (32, 32))
    return np.asarray(square, np.float32).reshape(8, 4, 8, 4).mean((1, 3)).ravel() / 16
