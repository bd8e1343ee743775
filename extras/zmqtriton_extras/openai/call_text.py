"""Calls of tools in the text that a model makes, found while it grows.

A model writes calls in the form that it was trained on. A reader gets the text in pieces of any
size, and returns texts and parts of calls. Text that only looked like a call is returned as text.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import NamedTuple, Protocol

#: Text before the name and the arguments of a call are known; more of it is no call.
_MAX_UNDECIDED = 1 << 20
#: Maximum letters of a call's name that stands alone before its arguments.
_MAX_NAME = 256
#: Maximum number of blanks before the text that decides whether there are calls.
_MAX_BLANKS = 1024
#: The members that hold the arguments.
_ARGUMENTS = ("arguments", "parameters")
_OUTSIDE = re.compile(r'["{}\[\],:]')
_INSIDE = re.compile(r'["\\]')
#: Maximum characters of a call's keys and name together.
_MAX_NAMES = 4096
#: Depth of braces and brackets inside the object of a call.
_TOP = 1


class CallScanner:
    """A call, `{"name": ..., "arguments": {...}}`, read while it grows, each character once.

    It begins with the `{` of its object.
    """

    def __init__(self, name: str = "") -> None:
        """Set up; if the name is known, the object has the arguments alone."""
        self.name = name
        self.is_over = False
        #: True once the text cannot be a call any more.
        self.is_broken = False
        #: The arguments have begun.
        self.has_arguments = bool(name)
        self._is_bare = bool(name)
        self._depth = _TOP if name else 0
        self._key: str | None = _ARGUMENTS[0] if name else None
        self._in_string = self._is_escaped = False
        #: Letters of a key, or of the value of the name.
        self._word: list[str] = []
        self._word_room = _MAX_NAMES
        #: Pieces of the arguments that were not taken yet.
        self._pieces: list[str] = []
        #: The arguments are a text with JSON in it: they are taken as a whole.
        self._is_text = False
        #: True once the arguments are complete; later ones of the object do not count.
        self._has_all = False

    def feed(self, text: str, at: int) -> int:
        """Read on from a position; return where the call ends, or the length of the text."""
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
        """Process a character with a meaning in JSON."""
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
    """Return the string that a JSON text means, "" for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    # a lone surrogate cannot be sent
    return value.encode("utf-8", "replace").decode() if type(value) is str else ""


class CallPart(NamedTuple):
    """A part of a call: its first has an id and the name, each has new arguments."""

    number: int
    arguments: str
    id: str = ""
    name: str = ""


class Form(NamedTuple):
    """The form of calls in a model's text: the marks around them, and the place of names."""

    #: Before calls; "" if they need nothing.
    begin: str
    #: After a call.
    end: str = ""
    #: True if calls can only begin at the start of the text.
    is_whole: bool = False
    #: A name may stand before its arguments, outside of their object.
    has_names: bool = False
    #: True if the marks are special tokens, which an engine leaves out of texts by default.
    has_special_marks: bool = False
    id_form: str = "call_{:.24}"


#: Forms by the names of vLLM's and Triton's options.
FORMS = {
    "hermes": Form("<tool_call>", "</tool_call>", has_special_marks=True),
    "llama3_json": Form("<|python_tag|>", is_whole=True),
    "llama3": Form("<|python_tag|>", is_whole=True),
    "mistral": Form("[TOOL_CALLS]", has_names=True, has_special_marks=True, id_form="{:.9}"),
}
#: Form of a list of calls that an engine was forced to make by a schema.
FORCED_LIST = Form("", is_whole=True)

_BLANKS = re.compile(r"\s+")

Parts = list[str | CallPart]


class CallReader(Protocol):
    """A reader of one growing text."""

    def feed(self, text: str) -> Parts:
        """Return the texts and the parts of calls in a new piece."""

    def end(self) -> Parts:
        """Return the rest, after the last piece of text."""


class ForcedCall:
    """The reader of a text that is the arguments of one call."""

    def __init__(self, name: str) -> None:
        self._name = name

    def feed(self, text: str) -> Parts:
        if not text:
            return []
        name, self._name = self._name, ""
        return [CallPart(0, text, new_id(), name) if name else CallPart(0, text)]

    def end(self) -> Parts:
        return [CallPart(0, "", new_id(), self._name)] if self._name else []


class CallText:
    """The reader of a text with calls in a form."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._state: Callable[[], bool] = self._beginning if form.is_whole else self._text
        #: The text that may have calls, and the reader's position.
        self._rest, self._at = "", 0
        #: Text held back since a tool call may have begun; sent as text if none did.
        self._undecided: list[str] = []
        self._undecided_size = 0
        #: Blanks at the beginning and after calls, which are text only if text follows.
        self._blanks: str | None = ""
        self._scanner = CallScanner()
        self._calls = 0
        #: No call has come since the last mark.
        self._is_empty = True
        #: A call has begun and has not ended.
        self._is_within = False
        #: A name may come next.
        self._may_be_name = False
        self._parts: Parts = []

    def feed(self, text: str) -> Parts:
        self._rest += text
        while self._at < len(self._rest) and self._state():
            pass
        self._rest, self._at = self._rest[self._at :], 0
        return self._take()

    def end(self) -> Parts:
        left = "".join([*self._undecided, self._rest])
        # behind calls there may be marks, and pieces of them
        if self._is_empty or "{" in left or self._state in (self._text, self._plain):
            self._say(left)
        if not self._calls and self._blanks:
            self._parts.append(self._blanks)
        self._undecided.clear()
        self._rest = ""
        return self._take()

    def _take(self) -> Parts:
        parts, self._parts = self._parts, []
        return parts

    # Each state looks at the rest from its place on; it returns False if it needs more.

    def _beginning(self) -> bool:
        """Decide by the first characters whether a text consists of tool calls or has no call."""
        begin = self._form.begin
        begun = self._rest[:_MAX_BLANKS].lstrip()
        if not begun and len(self._rest) < _MAX_BLANKS:
            return False
        if begun and begun != begin and begin.startswith(begun):
            return False
        is_call = begun.startswith(begin) if begin else begun.startswith("[")
        is_call |= begun.startswith("{")
        self._state = self._between if is_call else self._plain
        return True

    def _plain(self) -> bool:
        """Return the rest as plain text without calls."""
        self._say_until(len(self._rest))
        return False

    def _text(self) -> bool:
        """Read text until calls begin."""
        begin = self._form.begin
        at = self._rest.find(begin, self._at)
        if at >= 0:
            self._say_until(at)
            self._state = self._between
            return True
        self._say_until(len(self._rest) - _beginning_at_end(self._rest, self._at, begin))
        return False

    def _between(self) -> bool:
        """Look for the next call."""
        form, rest, at = self._form, self._rest, self._at
        for mark in (form.begin, form.end):
            if mark and rest.startswith(mark, at):
                self._take_mark(mark)
                return True
            if mark and len(rest) - at < len(mark) and mark.startswith(rest[at:]):
                return False
        first = rest[at]
        if first == "{":
            self._scanner = CallScanner()
            self._state = self._object
        elif blanks := _BLANKS.match(rest, at):
            self._pass(len(blanks[0]))
        elif first in "[,;":
            self._may_be_name = False
            self._pass(1)
        elif first == "]" and not self._is_empty:
            self._pass(1)
            self._leave()
        elif self._may_be_name:
            self._state = self._name
        else:
            self._give_up()
        return True

    def _take_mark(self, mark: str) -> None:
        self._pass(len(mark))
        if mark == self._form.begin:
            self._is_empty = True
            self._may_be_name = self._form.has_names
        elif self._is_empty:
            self._give_up()
        else:
            self._leave()

    def _name(self) -> bool:
        """Read the name that precedes the object with a call's arguments."""
        end = self._rest.find("{", self._at, self._at + _MAX_NAME)
        if end < 0:
            if len(self._rest) - self._at < _MAX_NAME:
                return False
            self._give_up()
            return True
        # further marks may stand behind it
        name = self._rest[self._at : end].partition("[")[0].strip()
        self._pass(end - self._at)
        self._may_be_name = False
        self._scanner = CallScanner(name)
        self._state = self._object
        return True

    def _object(self) -> bool:
        """Read the object of a call."""
        scanner = self._scanner
        end = scanner.feed(self._rest, self._at)
        if self._is_within:
            self._at = end
            if arguments := scanner.take_arguments():
                self._parts.append(CallPart(self._calls - 1, arguments))
        else:
            self._pass(end - self._at)
            self._begin_call()
        if self._is_within and (scanner.is_over or scanner.is_broken):
            self._is_within = False
            self._state = self._between
        elif not self._is_within and (
            scanner.is_over or scanner.is_broken or self._undecided_size > _MAX_UNDECIDED
        ):
            self._give_up()
        return True

    def _begin_call(self) -> None:
        """Report the beginning of a call once it certainly is one."""
        scanner = self._scanner
        is_call = scanner.has_arguments or (scanner.is_over and not self._form.is_whole)
        if not (scanner.name and is_call) or scanner.is_broken:
            return
        arguments = scanner.take_arguments() or ("{}" if scanner.is_over else "")
        call_id = self._form.id_form.format(uuid.uuid4().hex)
        self._parts.append(CallPart(self._calls, arguments, call_id, scanner.name))
        self._calls += 1
        self._is_within = True
        self._is_empty = False
        self._forget()
        self._blanks = ""

    def _pass(self, size: int) -> None:
        """Skip characters that are no text if a call follows."""
        self._undecided.append(self._rest[self._at : self._at + size])
        self._undecided_size += size
        self._at += size

    def _forget(self) -> None:
        self._undecided.clear()
        self._undecided_size = 0

    def _leave(self) -> None:
        """Continue with text after calls."""
        self._forget()
        self._state = self._plain if self._form.is_whole else self._text

    def _give_up(self) -> None:
        """Treat as text what seemed to be a call."""
        self._say("".join(self._undecided))
        self._leave()

    def _say_until(self, end: int) -> None:
        self._say(self._rest[self._at : end])
        self._at = end

    def _say(self, text: str) -> None:
        if self._blanks is not None:
            text = self._blanks + text
            if not text or text.isspace():
                self._blanks = text
                return
            self._blanks = None
        if text:
            self._parts.append(text)


def new_id() -> str:
    """Return the id of a call."""
    return f"call_{uuid.uuid4().hex[:24]}"


def _beginning_at_end(text: str, at: int, mark: str) -> int:
    """Return the number of last characters that can be the start of a mark."""
    longest = min(len(mark) - 1, len(text) - at)
    return next((size for size in range(longest, 0, -1) if text.endswith(mark[:size])), 0)
