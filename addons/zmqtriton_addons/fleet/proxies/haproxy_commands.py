"""Commands to a running HAProxy, by which servers come and go without a reload.

A reload starts another process. The old one hands the places of sequences over once, and has
answers to give after that: the new one never learns of sequences that begin with these. HAProxy 2.4
takes new servers by a reload only, 2.5 and newer by commands, too.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from zmqtriton_addons.fleet.proxies.haproxy import CHECKS, OWN_HOST
from zmqtriton_addons.fleet.proxies.layout import split_address
from zmqtriton_floor.errors import InvalidArgument

_WITHIN_S = 10.0
#: Columns of `show servers state`.
_BACKEND, _SERVER = 1, 3


class HaproxyCommands:
    """A running HAProxy, by its socket for commands."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def change(self, before: str, after: str) -> None:
        """Have HAProxy go from one configuration to another.

        Raises InvalidArgument if it must read its configuration again for that, and OSError.
        """
        old, old_rest = _split(before)
        new, new_rest = _split(after)
        if old_rest != new_rest:
            raise InvalidArgument("more than servers has changed")
        additions = [place for place in new if new[place] != old.get(place)]
        for place in additions:
            _check_address(new[place])
        # also those of earlier changes that still had connections then
        for place in self._present() - (new.keys() - additions):
            self._remove(place)
        for place in additions:
            self._add(place, new[place])

    def has_servers_of(self, configuration: str) -> bool:
        """Return whether HAProxy has all servers of a configuration. Raises OSError."""
        return _split(configuration)[0].keys() <= self._present()

    def _add(self, place: str, words: str) -> None:
        self._do(f"add server {place} {words} {CHECKS}", "New server registered.")
        self._do(f"enable health {place}")
        if " agent-check " in words:
            self._do(f"enable agent {place}")
            # as one of the configuration is until its agent says something else
            self._do(f"set server {place} agent up")
        self._do(f"enable server {place}")

    def _remove(self, place: str) -> None:
        """Take a server out; while it has connections its name stays, and gets nothing new."""
        self._do(f"disable agent {place}")
        self._do(f"disable server {place}")
        self._ask(f"del server {place}")

    def _present(self) -> set[str]:
        rows = [line.split() for line in self._ask("show servers state").splitlines()]
        return {f"{row[_BACKEND]}/{row[_SERVER]}" for row in rows[2:] if row}

    def _do(self, command: str, success: str = "") -> None:
        answer = self._ask(command)
        if answer != success:
            raise InvalidArgument(f"HAProxy answers '{command}' with '{answer}'")

    def _ask(self, command: str) -> str:
        parts = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_WITHIN_S)
            connection.connect(str(self._path))
            connection.sendall(f"{command}\n".encode())
            while part := connection.recv(65536):
                parts.append(part)
        return b"".join(parts).decode(errors="replace").strip()


def _split(configuration: str) -> tuple[Mapping[str, str], list[str]]:
    """Return the servers of all backends, by BACKEND/NAME, and all other lines.

    The address that stands for all servers on loopback is left out: each of these takes any.
    """
    servers, rest, backend = dict[str, str](), list[str](), ""
    for line in configuration.splitlines():
        kind, _, words = line.strip().partition(" ")
        if kind == "server":
            name, _, words = words.partition(" ")
            servers[f"{backend}/{name}"] = words
        else:
            backend = words if kind == "backend" else backend
            rest.append(OWN_HOST if line.startswith(OWN_HOST) else line)
    return servers, rest


def _check_address(words: str) -> None:
    host, _ = split_address(words.split()[0])
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return
    raise InvalidArgument(f"HAProxy looks up '{host}' at its start alone")
