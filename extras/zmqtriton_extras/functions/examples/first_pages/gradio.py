"""Gradio's first page: a greeting, with a form at http://localhost:8000/greet."""

from typing import Annotated

from pydantic import Field

from zmqtriton import model


@model
def greet(name: str, intensity: Annotated[int, Field(ge=1, le=10)] = 1) -> str:
    return "Hello, " + name + "!" * intensity
