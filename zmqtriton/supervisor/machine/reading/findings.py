"""The answers of a reader that are no types of the core: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zmqtriton.config.files import ClientFiles
from zmqtriton.supervisor.models.blueprint import Blueprint, FinalConfig, ReadFailure
from zmqtriton_floor.errors import ZmqTritonError


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
    #: What it comes to if the model adds nothing: of a client's it may be large, and takes long.
    #: None if that is not known here.
    finished: FinalConfig | ZmqTritonError | None = None


class FoundModel(NamedTuple):
    """A model that a repository has."""

    #: Where it lies, links followed: two repositories may name the same place.
    place: str
    reading: ModelReading | ReadFailure
