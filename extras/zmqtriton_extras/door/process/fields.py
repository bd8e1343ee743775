"""The fields of a client's header, read by name and type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton.sdk.frontend import admission
from zmqtriton.sdk.wire import InvalidArgument

_MAX_COUNT = 2**63 - 1


class Fields:
    """The fields of a map; call `check_known` after reading the last."""

    __slots__ = ("_document", "_of", "_read", "user")

    def __init__(self, document: Any, of: str, user: int = -1) -> None:
        """Set up; `of` names the owner of the fields in errors, and `user` is the sender."""
        if type(document) is not dict:
            raise InvalidArgument(f"{of} must be a map")
        self._document: dict[str, Any] = document
        self._of = of
        self.user = user
        self._read: set[str] = set()

    def take(self, name: str) -> Any:
        """Return a value of any type, or None."""
        self._read.add(name)
        return self._document.get(name)

    def _take(self, name: str, kind: type[Any], default: Any, noun: str) -> Any:
        if name not in self._document:
            return default
        self._read.add(name)
        value = self._document[name]
        if type(value) is not kind:
            raise InvalidArgument(f"'{name}' of {self._of} must be {noun}")
        return value

    def text(self, name: str, default: str = "", max_length: int = admission.MAX_NAME) -> str:
        value: str = self._take(name, str, default, "a string")
        if len(value) > max_length:
            raise InvalidArgument(
                f"'{name}' of {self._of} can have at most {max_length} characters"
            )
        return value

    def name(self, name: str) -> str:
        """Return a required text."""
        if name not in self._document:
            raise InvalidArgument(f"{self._of} has no '{name}'; add it")
        return self.text(name)

    def count(self, name: str, default: int = 0) -> int:
        value: int = self._take(name, int, default, "an integer")
        if not 0 <= value <= _MAX_COUNT:
            raise InvalidArgument(f"'{name}' of {self._of} must be from 0 to {_MAX_COUNT}")
        return value

    def flag(self, name: str) -> bool:
        return bool(self._take(name, bool, False, "true or false"))

    def items(self, name: str) -> list[Any]:
        items: list[Any] = self._take(name, list, [], "an array")
        return items

    def map(self, name: str) -> Mapping[str, Any]:
        members: Mapping[str, Any] = self._take(name, dict, {}, "a map")
        return members

    def has(self, name: str) -> bool:
        return name in self._document

    def check_known(self) -> None:
        """Raise InvalidArgument if the document has fields that no verb has read."""
        unknown = self._document.keys() - self._read
        if unknown:
            name = min(map(str, unknown))
            raise InvalidArgument(
                f"{self._of} has no field '{name[: admission.MAX_NAME]}': leave it out"
            )
