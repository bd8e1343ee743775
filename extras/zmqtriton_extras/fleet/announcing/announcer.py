"""The announcer: watches the state of the server, and keeps each place informed.

A place is a file that is replaced, or a URL that gets a POST. Both may block for long, so each has
a thread of its own, which also keeps announcements in order. A place that cannot be reached delays
neither the other places nor the server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from zmqtriton.sdk.frontend import Gateway, ModelVersion, Readiness
from zmqtriton.sdk.wire import ZmqTritonError, __version__
from zmqtriton_extras.fleet import FleetOptions
from zmqtriton_extras.fleet.announcing import announcement
from zmqtriton_extras.fleet.announcing.announcement import ENDED, Process, Stamp
from zmqtriton_standard.tracing.posting import Poster, PostError

_log = logging.getLogger(__name__)

#: Maximum seconds for an announcement to one place.
TELL_WITHIN_S = 5.0
#: Interval at which models that judge their own readiness are asked, and unannounced changes are
#: found.
_LOOK_EVERY_S = 1.0
#: Interval at which the server is asked whether clients can connect, until they can.
_OPENING_EVERY_S = 0.1
_LONGEST_WAIT_S = 3600.0
#: The pause after a failure: the first one, and the longest.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 15.0
#: Minimum seconds between two announcements; one announces all changes since the last.
APART_S = 0.1
#: Tells a place; raises AnnounceError.
Tell = Callable[[bytes, float], None]

_MAX_TOKEN = 16 << 10
#: Addresses reserved for documentation, to find the default route; nothing is sent there.
_ELSEWHERE = [(socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")]


class AnnounceError(Exception):
    """Raised if an announcement did not reach its place; the text says why."""


def open_place(place: str, token_file: str) -> Tell:
    """Return the function that writes to a file or URL. Raises OSError without certificates."""
    if "://" not in place:
        return lambda line, within_s: _replace(Path(place), line)
    headers = {"Content-Type": "application/json", "User-Agent": f"zmqtriton/{__version__}"}
    tls = ssl.create_default_context() if place.startswith("https:") else None
    poster = Poster(place, headers, tls)

    def post(line: bytes, within_s: float) -> None:
        try:
            poster(line, within_s, _authorization(token_file))
        except PostError as error:
            raise AnnounceError(str(error)) from None

    return post


def _replace(path: Path, line: bytes) -> None:
    """Replace the file, so that a reader always finds one complete announcement.

    Does not announce this run's end in a file of a later run: a killed server may have been started
    again already.
    """
    own = json.loads(line)
    if own.get("state") == ENDED and _started_s(path) > own["started_s"]:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        with draft.open("xb") as file:
            file.write(line)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise AnnounceError(error.strerror or str(error)) from None


def _started_s(path: Path) -> float:
    """Return the start time of the server whose announcement is in a file; 0 without one."""
    try:
        return float(json.loads(path.read_bytes())["started_s"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0.0


def _authorization(token_file: str) -> dict[str, str]:
    """Return the header with the token, read each time, because the token may be replaced."""
    if not token_file:
        return {}
    try:
        with open(token_file, "rb") as file:
            token = file.read(_MAX_TOKEN).decode("ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a token"
        raise AnnounceError(f"{token_file}: {reason}") from None
    if not token or not token.isprintable():
        raise AnnounceError(f"{token_file}: must be one line with a token")
    return {"Authorization": f"Bearer {token}"}


def own_host(place: str) -> str:
    """Return the address of this machine that `place` sees, or else the default route's."""
    seen_from = [*_resolve(urlsplit(place).hostname or ""), *_ELSEWHERE]
    for family, address in seen_from:
        if address_here := _source(family, address):
            return address_here
    return socket.gethostname()


def _resolve(host: str) -> list[tuple[int, str]]:
    if not host:
        return []
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return []  # it may be known later, or never; the default route will do
    return [(family, str(address[0])) for family, _, _, _, address in addresses]


def _source(family: int, host: str) -> str:
    """Return the source address of packets to a host; "" without a route."""
    with socket.socket(family, socket.SOCK_DGRAM) as end, suppress(OSError):
        end.connect((host, 9))  # of a datagram socket: nothing is sent
        return str(end.getsockname()[0])
    return ""


class AnnouncementSchedule:
    """The times of announcements to a place: after changes, after failures, and at intervals.

    Only the newest state is announced, so nothing is queued. Does no I/O and knows no clock.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._has_news = False
        #: Time before which nothing is announced.
        self._earliest_s = 0.0
        #: Never, before there was something to tell.
        self._told_s = math.inf
        self._pause_s = 0.0

    @property
    def is_failing(self) -> bool:
        return self._pause_s > 0

    def has_changed(self) -> None:
        """Plan an announcement of a change."""
        self._has_news = True

    def due_s(self) -> float:
        """Return the time of the next announcement."""
        return self._earliest_s if self._has_news else self._told_s + self._interval_s

    def begin(self) -> None:
        """Record the start of an announcement; changes from now on need another one."""
        self._has_news = False

    def succeeded(self, now_s: float) -> None:
        self._pause_s = 0.0
        self._told_s, self._earliest_s = now_s, now_s + APART_S

    def failed(self, now_s: float, chance: float) -> None:
        """Wait before the next attempt; `chance`, from 0 to 1, keeps many servers apart."""
        self._has_news = True
        self._pause_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, self._pause_s * 2))
        self._earliest_s = now_s + self._pause_s * (0.5 + chance / 2)


class Courier:
    """Sends announcements to a place, through one thread, so that they arrive in order."""

    def __init__(self, place: str, gateway: Gateway, process: Process) -> None:
        self._place = place.partition("?")[0]  # what follows may be secret
        options = gateway.settings.options_of("fleet", FleetOptions)
        self._tell = open_place(place, options.announce_token_file)
        self._describe = partial(
            announcement.describe_server, gateway, process, lambda: own_host(place)
        )
        self._news: dict[str, Any] = {}
        self._stamp = Stamp()
        self._schedule = AnnouncementSchedule(options.announce_interval_secs)
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "announcing")

    def update(self, news: dict[str, Any]) -> None:
        self._news = news
        self._schedule.has_changed()
        self._wake.set()

    async def run(self) -> None:
        """Announce to the place until cancelled."""
        while True:
            await self._wait()
            await self._attempt(TELL_WITHIN_S)

    async def finish(self, news: dict[str, Any], within_s: float) -> None:
        """Announce the end, if there is time."""
        self._news = news
        end_s = time.monotonic() + within_s
        self._schedule.has_changed()
        while (left_s := end_s - time.monotonic()) > 0 and not await self._attempt(left_s):
            await asyncio.sleep(min(0.2, within_s / 5))

    async def _wait(self) -> None:
        while (wait_s := self._schedule.due_s() - time.monotonic()) > 0:
            self._wake.clear()
            await _wait_for(self._wake, min(wait_s, _LONGEST_WAIT_S))

    async def _attempt(self, within_s: float) -> bool:
        self._schedule.begin()
        loop = asyncio.get_running_loop()
        telling = loop.run_in_executor(self._thread, self._tell_news, self._news, within_s)
        was_failing = self._schedule.is_failing
        try:
            await telling
        except AnnounceError as error:
            if not was_failing:
                text = "cannot announce this server to %s, and tries again: %s"
                _log.warning(text, self._place, error)
            self._schedule.failed(time.monotonic(), random.random())
            return False
        if was_failing:
            _log.info("this server is announced to %s again", self._place)
        self._schedule.succeeded(time.monotonic())
        return True

    def _tell_news(self, news: dict[str, Any], within_s: float) -> None:
        """Announce, with the present addresses: the network may come up after the server.

        Runs in the thread, since a name server may be slow. Raises AnnounceError.
        """
        self._tell(self._stamp.stamp(self._describe(), news, time.time()), within_s)


class Announcer:
    def __init__(self, gateway: Gateway, changed: asyncio.Event) -> None:
        """Set up; `changed` is set when the server's state may have changed."""
        self._gateway, self._changed = gateway, changed
        self._readiness = Readiness(gateway)
        settings = gateway.settings
        places = settings.options_of("fleet", FleetOptions).announce
        process = Process(socket.gethostname(), os.getppid(), settings.server.started_at)
        self._couriers = [Courier(place, gateway, process) for place in places]
        self._news: dict[str, Any] = {}
        self._is_open = False

    async def run(self) -> None:
        """Keep all places informed until cancelled."""
        await asyncio.gather(self._watch(), *(courier.run() for courier in self._couriers))

    async def finish(self, reason: str, within_s: float) -> None:
        """Announce the end of the server."""
        news = {**self._news, "state": announcement.ENDED, "models": []}
        if reason:
            news["reason"] = reason
        await asyncio.gather(*(courier.finish(news, within_s) for courier in self._couriers))

    async def _watch(self) -> None:
        while True:
            self._changed.clear()
            news = await self._look()
            if news != self._news:
                self._news = news
                for courier in self._couriers:
                    courier.update(news)
            await _wait_for(self._changed, _LOOK_EVERY_S if self._is_open else _OPENING_EVERY_S)

    async def _look(self) -> dict[str, Any]:
        gateway, catalogue = self._gateway, self._gateway.catalogue
        self._is_open = self._is_open or await _says(self._gateway.call("is_open", {}))
        is_ready, own_readiness = False, dict[int, bool]()
        if self._is_open:
            is_ready = await _says(self._readiness.of_server())
            for number in catalogue.generations_with_is_ready():
                own_readiness[number] = await _says(self._readiness.of_generations([number]))

        may_be_asked = self._is_open and catalogue.may_be_asked and not gateway.is_stopping

        def says_ready(version: ModelVersion) -> bool:
            own = own_readiness.get(version.generation, True)
            return may_be_asked and version.is_ready and own

        state = announcement.server_state(
            is_open=self._is_open,
            is_draining=catalogue.is_draining,
            is_stopping=gateway.is_stopping,
            is_ready=is_ready,
        )
        models = announcement.describe_models(catalogue.versions(), says_ready)
        return {"state": state, "models": models}


async def _says(question: Awaitable[Any]) -> bool:
    """Return the answer to a question; False if it fails."""
    try:
        return bool(await question)
    except ZmqTritonError as error:
        _log.debug("no: %s", error.text)
        return False


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, at most this number of seconds.

    Up to Python 3.11 `asyncio.wait_for()` forgets a cancellation if the event is set as well, as it
    is when the server ends.
    """
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((waiting,), timeout=seconds)
    finally:
        waiting.cancel()
