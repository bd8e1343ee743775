"""What is written in this picture? RapidOCR has a network to find lines, and one to read them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL.Image import Image
from rapidocr_onnxruntime import RapidOCR

from zmqtriton import model

#: Lines that are read at a time.
AT_ONCE = 6


@dataclass
class Line:
    text: str
    score: float
    #: Left, top, right and bottom, in pixels.
    box: list[int]


@model(instances=2, examples=[{"image": Path(__file__).parent / "receipt.png"}])
class ReadText:
    """Read the text of a picture, line by line from the top."""

    def __init__(self) -> None:
        self.engine = RapidOCR(intra_op_num_threads=1)

    def __call__(self, image: Image, min_score: float = 0.5) -> Iterator[Line]:
        picture = np.asarray(image.convert("RGB"))[:, :, ::-1].copy()
        corners, _ = self.engine.auto_text_det(picture)
        if corners is None:
            return
        crops = self.engine.get_crop_img_list(picture, corners)
        for at in range(0, len(crops), AT_ONCE):
            texts, _ = self.engine.text_rec(crops[at : at + AT_ONCE])
            for (text, score), places in zip(texts, corners[at : at + AT_ONCE]):
                if score >= min_score:
                    box = [*places.min(0), *places.max(0)]
                    yield Line(text, round(float(score), 3), [int(side) for side in box])
