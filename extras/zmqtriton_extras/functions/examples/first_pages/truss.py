"""Truss's first page: the label of a text, and how certain it is."""

from zmqtriton import model


@model
class Classify:
    def __init__(self) -> None:
        self._model = lambda text: {"label": "POSITIVE", "score": text.count("great") / 2}

    def __call__(self, text: str) -> dict:
        return self._model(text)
