"""A call, `{"name": ..., "arguments": {...}}`, read while it grows, each character once."""

from __future__ import annotations

import json
import re

#: The members that hold the arguments.
_ARGUMENTS = ("arguments", "parameters")
_OUTSIDE = re.compile(r'["{}\[\],:]')
_INSIDE = re.compile(r'["\\]')
#: Keys and the name of a call are no longer than this together.
_MAX_NAMES = 4096
#: Within the object of the call itself.
_TOP = 1


class CallScanner:
    """One call; begins with the `{` of its object."""

    def __init__(self, name: str = "") -> None:
        """Set up; with a name the object has the arguments alone."""
        self.name = name
        self.is_over = False
        #: It is no call.
        self.is_broken = False
        #: The arguments have begun.
        self.has_arguments = bool(name)
        self._is_bare = bool(name)
        self._depth = _TOP if name else 0
        self._key: str | None = _ARGUMENTS[0] if name else None
        self._in_string = self._is_escaped = False
        #: Of a key, or of the value of the name.
        self._word: list[str] = []
        self._word_room = _MAX_NAMES
        #: Of the arguments, to be taken.
        self._pieces: list[str] = []
        #: The arguments are a text with JSON in it: they are taken as a whole.
        self._is_text = False
        #: Others that follow are not theirs.
        self._has_all = False

    def feed(self, text: str, at: int) -> int:
        """Read on from a place; return where the call ends, or the length of the text."""
        while at < len(text) and not self.is_over and not self.is_broken:
            if self._is_escaped:
                self._is_escaped = False
                self._keep(text[at])
                at += 1
                continue
            match = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            end = match.start() if match else len(text)
            self._keep(text[at:end])
            at = end + 1 if match else end
            if match:
                self._mark(match[0])
        return at

    def take_arguments(self) -> str:
        """Return the new part of the arguments."""
        if self._is_text and not self.is_over:
            return ""
        taken = "".join(self._pieces)
        self._pieces.clear()
        if self._is_text and taken:
            # what is no JSON stays as the model wrote it
            return _string(taken) or taken
        return taken

    def _mark(self, mark: str) -> None:
        """Take a character with a meaning."""
        if self._in_string:
            self._is_escaped = mark == "\\"
            self._in_string = self._is_escaped
            self._keep(mark)
        elif mark == '"':
            self._in_string = True
            self._keep(mark)
        elif mark in "{[":
            self._depth += 1
            if self._depth > _TOP:
                self._keep(mark)
        elif mark in "}]":
            self._close(mark)
        elif self._depth == _TOP and mark == ":" and self._key is None:
            self._end_key()
        elif self._depth == _TOP and mark == ",":
            self._end_member()
        else:
            self._keep(mark)

    def _close(self, mark: str) -> None:
        if self._depth == _TOP:
            self._end_member()
            self.is_over = True
            return
        self._keep(mark)
        self._depth -= 1
        if self._is_bare and self._depth == _TOP:
            self.is_over = True

    def _keep(self, text: str) -> None:
        if self._depth == _TOP and not self._in_string:
            text = text.strip()
        if not text:
            return
        if self._key in _ARGUMENTS:
            if self._has_all:
                return
            if not self.has_arguments:
                self._is_text = text.startswith('"')
                self.has_arguments = True
            self._pieces.append(text)
        elif self._key is None or self._key == "name":
            self._word_room -= len(text)
            self.is_broken |= self._word_room < 0
            self._word.append(text)

    def _end_key(self) -> None:
        self._key = self._take_word()

    def _end_member(self) -> None:
        if self._key == "name":
            self.name = self._take_word()
        elif self._key in _ARGUMENTS:
            self._has_all = self.has_arguments
        elif self._key is None and self._word:
            self.is_broken = True
        self._key = None

    def _take_word(self) -> str:
        word = _string("".join(self._word))
        self._word.clear()
        self.is_broken |= not word
        return word


def _string(text: str) -> str:
    """Return the string that a text is in JSON, "" for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    # a lone surrogate cannot be sent
    return value.encode("utf-8", "replace").decode() if type(value) is str else ""
