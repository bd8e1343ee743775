"""Ray Serve's first page: two copies of a translator."""

from zmqtriton import model


@model(instances=2)
class Translator:
    def __init__(self) -> None:
        self.words = {"hello": "bonjour", "world": "monde"}

    def __call__(self, text: str) -> str:
        return " ".join(self.words.get(word, word) for word in text.lower().split())
