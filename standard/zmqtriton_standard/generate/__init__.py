"""Triton's extension `generate`, and `infer_stream`: JSON in, JSON or events out."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option


class GenerateOptions(NamedTuple):
    http_header_forward_generate: Annotated[
        bool,
        Option("Forward these headers with generate and generate_stream, too; Triton does not."),
    ] = False


ADDON = AddOn(
    "generate",
    title="HTTP",
    options=GenerateOptions,
    offers={
        "http.extension": ".extension:EXTENSION",
        "diagnosis.config": ".checks:warnings",
    },
)
