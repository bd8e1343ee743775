"""The web server of transformers' page: what a pipeline returns, as it is."""

from zmqtriton import model


@model
class FillMask:
    def __init__(self) -> None:
        self.pipe = lambda text: [
            {"score": score, "token_str": word, "sequence": text.replace("[MASK]", word)}
            for word, score in (("rain", 0.75), ("snow", 0.25))
        ]

    def __call__(self, text: str) -> list[dict]:
        return self.pipe(text)
