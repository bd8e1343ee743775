"""What is written in this picture? RapidOCR has a network to find lines, and one to read them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL.Image import Image
from rapidocr import RapidOCR

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
        one = {"EngineConfig.onnxruntime.intra_op_num_threads": 1, "Global.log_level": "error"}
        self.engine = RapidOCR(params=one)

    def __call__(self, image: Image, min_score: float = 0.5) -> Iterator[Line]:
        picture = np.asarray(image.convert("RGB"))[:, :, ::-1].copy()
        corners = self.engine(picture, use_cls=False, use_rec=False).boxes
        if corners is None:
            return
        crops = self.engine.crop_text_regions(picture, corners)
        for at in range(0, len(crops), AT_ONCE):
            read = self.engine.recognize_txt(crops[at : at + AT_ONCE])
            for text, score, places in zip(read.txts, read.scores, corners[at : at + AT_ONCE]):
                if score >= min_score:
                    box = [*places.min(0), *places.max(0)]
                    yield Line(text, round(float(score), 3), [int(side) for side in box])
