"""The places of files on the server's machine, hidden from a token for some models.

Its holder may know the files of these models, and not in which directories they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from zmqtriton_floor.access.token_file import Grant
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.access.bearer_tokens import may_see

_NAME = r"[^\s/'\"`,;:()<>]"
#: An absolute path, but not the end of another, of an address or of a fraction.
_PATH = re.compile(rf"(?<![\w.:/~-])/(?:{_NAME}+/)*{_NAME}+")


def may_see_places(grant: Grant | None) -> bool:
    return grant is None or grant.is_for_all_models


def without_places(value: Any, model: str) -> Any:
    """Return a text, or a document of texts, about a model with paths that begin at the model."""
    if isinstance(value, str):
        return _PATH.sub(lambda match: _shorten(match[0], model), value)
    if isinstance(value, list):
        return [without_places(each, model) for each in value]
    if isinstance(value, dict):
        return {key: without_places(each, model) for key, each in value.items()}
    return value


def _shorten(path: str, model: str) -> str:
    """Return the path from the model's directory on, or the file's name."""
    names = path.split("/")
    return "/".join(names[names.index(model) :]) if model in names else names[-1]


def visible_entries(index: Iterable[dict[str, Any]], grant: Grant | None) -> list[dict[str, Any]]:
    """Return the entries of the index that the holder of a token may see, and what of them."""
    entries = [entry for entry in index if may_see(grant, entry["name"])]
    if may_see_places(grant):
        return entries
    return [without_places(entry, entry["name"]) for entry in entries]


@contextmanager
def places_hidden(grant: Grant | None, model: str) -> Iterator[None]:
    """Shorten the paths in the error of a call about a model."""
    try:
        yield
    except ZmqTritonError as error:
        if not may_see_places(grant):
            error.args = (without_places(error.text, model),)
        raise
