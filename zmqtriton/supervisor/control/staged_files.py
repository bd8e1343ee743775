"""Directories that loads bring along: their users, and the time of their removal.

Each was written by the process that asks for the load. It belongs to the supervisor from that call
on, until the load has ended and the last generation that runs from it is gone. Does no I/O.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Any

from zmqtriton.supervisor.actions import RemoveDirectory
from zmqtriton.supervisor.control.verbs import OWN_CALLER
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor import staging
from zmqtriton_floor.errors import InvalidArgument


class StagedFiles:
    def __init__(self, plan: Plan, runtime: str) -> None:
        self._plan = plan
        self._folder = staging.folder(runtime)
        #: By path: True while its load is under way.
        self._is_loading: dict[str, bool] = {}

    def claim(self, caller: int, parameters: Any) -> str:
        """Take over the directory that a load names; "" if it names none.

        Raises InvalidArgument.
        """
        path = self.place(caller, parameters)
        if path in self._is_loading:
            raise InvalidArgument("the files of a load can be loaded once")
        if path:
            self._is_loading[path] = True
        return path

    def place(self, caller: int, parameters: Any) -> str:
        """Return the directory that a load names, or "". Raises InvalidArgument."""
        name = parameters.get("staged", "") if isinstance(parameters, dict) else None
        if name == "":
            return ""
        # A model can make its stub say anything, so it may not name another process's directory.
        if not isinstance(name, str) or not re.fullmatch(rf"{caller}-[0-9a-f]{{16}}", name):
            raise InvalidArgument("the process that requests a load must have staged its files")
        return posixpath.join(self._folder, name)

    def claim_copy(self) -> str:
        """Return a place for a copy of what another server has."""
        path = posixpath.join(self._folder, f"{OWN_CALLER}-{self._plan.new_ticket():016x}")
        self._is_loading[path] = True
        return path

    def load_ended(self, path: str) -> None:
        """Note that the load has ended, well or badly."""
        if path:
            self._is_loading[path] = False

    def is_claimed(self, path: str) -> bool:
        return path in self._is_loading

    def remove_unused(self, used: Iterable[str]) -> None:
        """Remove the directories that neither a load nor one of these generations needs."""
        if not self._is_loading:
            return
        still_used = set(used)
        gone = [
            p
            for p, is_loading in self._is_loading.items()
            if not is_loading and p not in still_used
        ]
        for path in gone:
            del self._is_loading[path]
            self._plan.enqueue(RemoveDirectory(path))
