"""BentoML's first page: summaries, for the texts of many clients at once."""

from zmqtriton import model


@model(batch=8)
class Summarization:
    def __init__(self) -> None:
        self.pipeline = lambda texts: [text.partition(".")[0] + "." for text in texts]

    def __call__(self, texts: list[str]) -> list[str]:
        return self.pipeline(texts)
