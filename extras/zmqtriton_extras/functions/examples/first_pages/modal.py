"""Modal's first page: a function that squares."""

from zmqtriton import model


@model
def square(x: int = 42) -> int:
    return x**2
