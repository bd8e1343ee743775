"""Messages to systemd and from it: sd_notify(3), sd_watchdog_enabled(3) and sd_listen_fds(3).

Used by the supervisor, which alone may speak for the service. Does nothing if systemd has not
started the server.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import NamedTuple

_log = logging.getLogger(__name__)

#: Interval of messages to systemd for a service without a watchdog.
_BEAT_S = 10.0
#: Interval of messages as a share of the watchdog's time: two of three messages may be late.
_WATCHDOG_SHARE = 1 / 3
#: Variables from systemd for the supervisor alone; a child that used them would speak for the whole
#: server.
SERVICE_VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)
#: First descriptor of the sockets that are passed.
_FIRST_SOCKET = 3


class PassedSocket(NamedTuple):
    """A listening socket that systemd keeps open while no server runs."""

    descriptor: int
    #: Name that the socket's unit gives it: FileDescriptorName=, or the unit's own; "" without one.
    name: str


class Notifier:
    """The socket for the service's state; sends nothing without an address."""

    def __init__(self, address: str = "", beat_s: float | None = None) -> None:
        #: addresses that begin with @ are abstract, and lie in no directory
        self._address = "\0" + address[1:] if address.startswith("@") else address
        #: Interval of messages that the server lives; None if systemd has not started it.
        self.heartbeat_s = beat_s

    def send(self, assignments: str) -> None:
        """Send lines such as READY=1. They are lost if systemd does not take them at once."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
            end.setblocking(False)
            try:
                end.sendto(assignments.encode(), self._address)
            except OSError as error:
                _log.debug("systemd was not told %s: %s", assignments, error)


def notifier_from_environment(environment: Mapping[str, str], pid: int) -> Notifier:
    """Read the environment; the watchdog counts only if it is meant for this process."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return Notifier()
    is_ours = environment.get("WATCHDOG_PID", str(pid)) == str(pid)
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not (is_ours and microseconds.isdigit() and int(microseconds)):
        return Notifier(address, _BEAT_S)
    return Notifier(address, min(_BEAT_S, int(microseconds) / 1e6 * _WATCHDOG_SHARE))


def invocation(environment: Mapping[str, str]) -> str:
    """Return systemd's id of this run of a service; "" outside of a service."""
    return environment.get("INVOCATION_ID", "")


def reload_words(groups: str) -> str:
    """Return the words of systemctl that reload the service with a process in these groups."""
    lines = sorted(groups.splitlines(), key=lambda line: not line.startswith("0::"))
    units = [name for line in lines for name in line.split("/") if name.endswith(".service")]
    own = next((name for name in units if not name.startswith("user@")), "")
    of_user = "--user " if own and units[0].startswith("user@") else ""
    return f"{of_user}reload {own.removesuffix('.service') or 'UNIT'}"


def passed_sockets(environment: Mapping[str, str], pid: int) -> list[PassedSocket]:
    """Return the sockets that were passed to this process."""
    number = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(pid) or not number.isdigit():
        return []
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    names += [""] * (int(number) - len(names))
    return [PassedSocket(_FIRST_SOCKET + i, names[i]) for i in range(int(number))]
