"""The meaning of words that are not ours: of models and libraries. Special patterns first.

Text of an exception or a log, which nothing but its words tells apart. Does no I/O.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RESTART = "zmqtriton-ctl restart {model}"
_LOGS = "zmqtriton-ctl logs {model}"
_STATUS = "zmqtriton-ctl status {model}"


class Words(NamedTuple):
    """A pattern, and what it means: with its groups as {0}, {1} ..., the place as {at}."""

    pattern: str
    text: str
    advice: str
    commands: tuple[str, ...]


_KNOWN = (
    Words(
        r"No module named '([^']*)'",
        "cannot import '{0}'{at}: the module is missing in its environment",
        "List it in {model}/requirements.txt (with --build-environments), or have it in the "
        "archive of EXECUTION_ENV_PATH, or install it into the server's Python.",
        (_RESTART,),
    ),
    Words(
        r"(ImportError: .*)",
        "an import fails: {0}{at}",
        "A library is missing or of another version than the model expects.",
        (_LOGS, _RESTART),
    ),
    Words(
        r"((?:Syntax|Indentation|Tab)Error: .*)",
        "its code cannot be read: {0}",
        "Correct model.py; `zmqtriton check DIRECTORY` shows the line.",
        (_RESTART,),
    ),
    Words(
        r"Too many open files",
        "a process has no file descriptors left: Too many open files{at}",
        "Raise `ulimit -n` (LimitNOFILE= of systemd), or close files in the model.",
        (_LOGS,),
    ),
    Words(
        r"(max_segment_bytes)",
        "its tensors need more shared memory than max_segment_bytes allows",
        "Raise the quota, or send smaller tensors.",
        (_STATUS,),
    ),
    Words(
        r"CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY",
        "the memory of the GPU is exhausted{at}",
        "Use fewer instances or smaller batches, or unload another model of that GPU.",
        ("nvidia-smi", _STATUS),
    ),
    Words(
        r"(MemoryError.*)",
        "it has no memory left: {0}{at}",
        "Give the machine more memory, or the model less to hold.",
        (_LOGS, _RESTART),
    ),
    Words(
        r"asks for it in its initialize and would wait for itself",
        "its initialize loads a model that waits for it",
        "Load that model elsewhere: models that load each other wait for ever.",
        (_LOGS,),
    ),
    Words(
        r"BLS calls would deadlock: (.*)",
        "deadlock: models call each other and wait for ever ({0})",
        "Give the called model another instance, or let no model call itself.",
        ("zmqtriton-ctl scale {model} 2", "zmqtriton-ctl stacks {model}"),
    ),
    Words(
        r"PermissionError: (.*)",
        "it may not: {0}{at}",
        "Give the user of the models (--stub-user, if set) the right to use that file.",
        (_LOGS, _RESTART),
    ),
)
#: Any exception, where there is nothing else than the text.
_EXCEPTION = Words(
    r"\b((?:\w+\.)*\w*(?:Error|Exception|Exit)\b(?::[^\n]*)?)",
    "it raises {0}{at}",
    "Correct the model, or what it needs there.",
    (_LOGS, _RESTART),
)
_COMPILED = tuple((re.compile(words.pattern), words) for words in _KNOWN)
_ANY = (re.compile(_EXCEPTION.pattern), _EXCEPTION)
_PLACE = re.compile(r"At:\s+(\S+?)\((\d+)\): ([\w<>.]+)")


def explain_words(text: str, at: str, *, is_any: bool) -> Words | None:
    """Return what the words mean, with all but the model filled in.

    `is_any` takes any exception, too; else those that are known to mean something.
    """
    for pattern, words in (*_COMPILED, _ANY)[: None if is_any else len(_COMPILED)]:
        match = pattern.search(text)
        if match is not None:
            return words._replace(text=words.text.format(*match.groups(), at=at))
    return None


def find_place(text: str) -> str:
    """Return the place in the model that a text names; "" if it names none."""
    match = _PLACE.search(text)
    return place_text(*match.groups()) if match else ""


def place_text(file: str, line: str | int, function: str) -> str:
    """Return a place as in ` (model.py, line 8, in initialize)`."""
    where = "" if function.startswith("<") else f", in {function}"
    return f" ({file.rpartition('/')[2]}, line {line}{where})"


def first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""
