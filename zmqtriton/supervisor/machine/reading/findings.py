"""The answers of a reader that are no types of the core: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zmqtriton.config.files import ClientFiles
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure


class SourceText(NamedTuple):
    """The file of a configuration as it was read, for errors that are found later."""

    path: str
    text: str


@dataclass(frozen=True)
class ModelReading:
    """A blueprint without its functions, and what these are made of."""

    blueprint: Blueprint
    #: The configuration as protobuf.
    config: bytes
    files: ClientFiles
    #: None if the load brought a configuration along, or there is no file.
    source: SourceText | None


class FoundModel(NamedTuple):
    """A model that a repository has."""

    #: Where it lies, links followed: two repositories may name the same place.
    place: str
    reading: ModelReading | ReadFailure
