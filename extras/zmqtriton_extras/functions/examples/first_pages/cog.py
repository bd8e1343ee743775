"""Cog's first page: a picture goes in, a picture comes out. Inverts a BMP, as a network would."""

from zmqtriton import Image, model


@model
class Predictor:
    def __init__(self) -> None:
        self.net = bytes(range(255, -1, -1))

    def __call__(self, image: Image) -> Image:
        """Run a single prediction."""
        begin = int.from_bytes(image.data[10:14], "little")
        return Image(image.data[:begin] + image.data[begin:].translate(self.net))
