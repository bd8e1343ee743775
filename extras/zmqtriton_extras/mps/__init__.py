"""MPS: processes of models compute on a GPU at the same time, each with a share of it."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option, Parameter


class Options(NamedTuple):
    mps: Annotated[
        str,
        Option(
            "'auto': start NVIDIA's MPS control daemon when a GPU gets a second process of a "
            "model, or a model with GPU_SHARE. 'off': models use a daemon of yours, or none.",
            "auto|off",
            ".settings:read_option",
        ),
    ] = "off"


ADDON = AddOn(
    "mps",
    title="GPU sharing",
    options=Options,
    parameters={
        "GPU_SHARE": Parameter(
            "percent from `1%` to `100%`, and optionally a limit of memory, as `30% 8G`",
            "`100%`",
            "Share of a GPU's threads for each instance, with `--mps=auto`.",
        ),
    },
    offers={
        "models.settings": ".settings",
        "supervisor.feature": ".feature:MpsDaemon",
        "diagnosis.model": ".findings",
        "diagnosis.configs": ".slices:notes_of_configs",
        "diagnosis.chapters": ".slices:chapters",
    },
)
