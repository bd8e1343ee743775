"""LitServe's first page: two models and one answer."""

from zmqtriton import model


@model
class InferencePipeline:
    def __init__(self) -> None:
        self.model1 = lambda x: x**2
        self.model2 = lambda x: x**3

    def __call__(self, input: float) -> float:
        a = self.model1(input)
        b = self.model2(input)
        return a + b
