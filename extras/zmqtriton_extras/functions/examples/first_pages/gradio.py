"""Gradio's first page: a greeting, with a form at http://localhost:8000."""

from zmqtriton import model


@model
def greet(name: str, intensity: int = 1) -> str:
    return "Hello, " + name + "!" * intensity
