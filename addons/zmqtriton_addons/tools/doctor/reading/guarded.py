"""Reads facts one by one: one that cannot be read is noted, and the others are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zmqtriton_addons.tools.doctor.facts import Facts

#: What is read, where the name of the field does not say it to a user.
_WORDS = {
    "gpu": "the GPUs",
    "has_uv": "the path to uv",
    "home_problem": "the home directory",
    "installed_s": "the time of the installation",
    "log_directory": "the directory of the log",
    "memory": "the memory of the machine",
    "model_pythons": "the Pythons of the models",
    "proxies": "the proxies of the environment",
    "repository_problems": "the model repositories",
    "temporary": "the directory for temporary files",
    "units": "the units of systemd",
}


def add(facts: Facts, **readers: Callable[[], Any]) -> Facts:
    """Return the facts with what the readers of these fields return.

    Where one fails, the field stays that of a healthy machine, and the failure is a fact, too.
    """
    found: dict[str, Any] = {}
    unread = dict(facts.unread)
    for name, read in readers.items():
        try:
            found[name] = read()
        except Exception as error:  # noqa: BLE001 - whatever a machine has, the rest is judged
            unread[_WORDS.get(name, f"the {name.replace('_', ' ')}")] = _reason(error)
    return replace(facts, **found, unread=unread)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
