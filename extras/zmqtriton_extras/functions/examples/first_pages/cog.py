"""Cog's first page: a picture goes in, a picture comes out. Inverts a BMP, as a network would."""

from pathlib import Path

from zmqtriton import model


@model
class Predictor:
    def __init__(self) -> None:
        self.net = bytes(range(255, -1, -1))

    def __call__(self, image: Path) -> Path:
        """Run a single prediction."""
        data = image.read_bytes()
        begin = int.from_bytes(data[10:14], "little")
        image.write_bytes(data[:begin] + data[begin:].translate(self.net))
        return image
