"""Cores: disjoint sets of cores for instances, and numbers of threads to match."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option, Parameter


class Options(NamedTuple):
    cores: Annotated[
        str,
        Option(
            "'auto': deal the cores to the instances of all models, as disjoint sets near one "
            "cache; a model's parameter CORES overrides this. 'off': only to models with CORES.",
            "auto|off",
            ".settings:read_option",
        ),
    ] = "off"


ADDON = AddOn(
    "cores",
    title="Cores",
    options=Options,
    parameters={
        "CORES": Parameter(
            "`auto`, a number of cores from 1 to 1024, or `all`",
            "`all`, with `--cores=auto`: `auto`",
            "Cores of each instance, which no other instance has; `auto`: an even part of them.",
        ),
    },
    offers={
        "models.settings": ".settings",
        "supervisor.feature": ".feature:CoreShares",
        "diagnosis.configs": ".findings:notes_of_configs",
        "diagnosis.chapters": ".findings:chapters",
        "diagnosis.model": ".findings",
    },
)
