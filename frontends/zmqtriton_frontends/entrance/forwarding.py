"""The headers of requests that models get as parameters, where the server has an option for it.

Each protocol makes one `Forwarding` of its option; it is false if nothing is forwarded. Texts are
Triton's. Where tokens are needed models do not get them, whatever the pattern says: another model's
code could use them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.access.bearer_tokens import HEADER
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.inference.model_version import ModelVersion

#: Names that mean something to the server as parameters, so a client's header may not set them.
_RESERVED = frozenset(
    (
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    )
)
#: Beginning of a pattern that says, in Triton's regular expressions, that case counts.
_CASE_COUNTS = "(?-i)"


class Forwarding:
    """A step that copies headers of a request into its parameters."""

    def __init__(self, pattern: str, *, hides_tokens: bool = False) -> None:
        flags = "" if pattern.startswith(_CASE_COUNTS) else "(?i)"
        pattern = pattern.removeprefix(_CASE_COUNTS)
        self._pattern = re.compile(flags + pattern) if pattern else None
        self._hides_tokens = hides_tokens

    def __bool__(self) -> bool:
        return self._pattern is not None

    def __call__(
        self, ask: Ask, model: ModelVersion, content: Content
    ) -> tuple[ModelVersion, Content]:
        if ask.spelled_headers is not None:
            self.add(content.body.parameters, ask.spelled_headers())
        return model, content

    def add(self, parameters: dict[str, Any], headers: Iterable[tuple[str, str | bytes]]) -> None:
        """Copy the headers whose names match the pattern.

        Raises InvalidArgument for a reserved name.
        """
        if self._pattern is None:
            return
        for name, value in headers:
            if not self._pattern.search(name):
                continue
            key = name.lower()
            if self._hides_tokens and key == HEADER:
                continue
            if key in _RESERVED or key.startswith("triton_"):
                raise InvalidArgument(
                    f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
                )
            parameters[name] = value if isinstance(value, str) else _text(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
