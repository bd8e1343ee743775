"""Bearer tokens: finds the rights of a presented token's holder, or refuses the request.

There is one object in a process. It looks at the token file once a second: a changed file is read
when it has been unchanged for a second, and an unusable file changes nothing. A token is looked up
by its hash, so the time of a look-up tells nothing about valid tokens.

Wrong tokens are limited for each address by a bucket, which every failure fills and time empties. A
limited number of addresses is remembered, and the one that was silent for longest is forgotten
first, so that clients cannot fill the memory by coming from ever new addresses.

If a token is for some models only, its holder sees the paths of their files from the model's
directory on, but not the directories above it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, timezone
from typing import Any, NamedTuple, NoReturn

from zmqtriton_floor.errors import Unavailable, ZmqTritonError
from zmqtriton_floor.file_marks import mark_of
from zmqtriton_floor.hosts import ip_of
from zmqtriton_floor.metrics import TOKENS
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.token_file import CONTROL, INFER, METRICS, Grant, TokenFileError
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.process.futures import Callbacks
from zmqtriton_frontends.process.own_threads import Threads

_log = logging.getLogger(__name__)

#: The header in lower case, which is also the key of gRPC's metadata.
HEADER = "authorization"
#: The same as it arrives over HTTP.
RAW_HEADER = HEADER.encode()
_LOOK_EVERY_S = 1.0
#: Scopes whose calls concern the whole server if they name no model.
_OF_SERVER = frozenset({CONTROL, METRICS})

Mark = tuple[int, ...]
#: The grants in the file, or why it cannot be used.
_Content = tuple[Grant, ...] | TokenFileError
#: The file as it is now, and what it has if that is new.
_Look = tuple[Mark, _Content | None]
#: Need of a call without a token: balancers ask whether the server lives and is ready, and the
#: pages show nothing of it.
OPEN = ""
#: Need of a call with any token, whatever its scopes.
ANY = "any"

_BY_CATEGORY = {
    "": OPEN,
    "health": OPEN,
    "metadata": ANY,
    "model-config": ANY,
    "statistics": ANY,
    "inference": INFER,
    "shared-memory": INFER,
}
#: Wrong tokens that an address may present in a burst; after each SECONDS_FOR_ONE it may present
#: one more.
MAX_AT_ONCE = 20
SECONDS_FOR_ONE = 3.0
#: Bits of an IPv6 network, which counts as one address: its holder has all others of it, too.
_OWN_BITS = 64
_NAME = r"[^\s/'\"`,;:()<>]"
#: An absolute path, but not the end of another, of an address or of a fraction.
_PATH = re.compile(rf"(?<![\w.:/~-])/(?:{_NAME}+/)*{_NAME}+")


class Failure(NamedTuple):
    """The server's reaction to a wrong token."""

    #: Set for the first failure after a silence.
    begins_burst: bool
    #: Seconds until another wrong token of this address gets 401 again; 0 if this one does,
    #: otherwise it gets 429.
    wait_s: int


class FailureLimit:
    #: The number of addresses that are remembered.
    MAX_ADDRESSES = 4096

    def __init__(self) -> None:
        #: Wrong tokens in the bucket of each address (of IPv6: of its network), and the time of
        #: the last one; the address that failed last comes last.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def add(self, address: str, now_s: float) -> Failure:
        """Add a failure of an address."""
        holder = _holder(address)
        level, since_s = self._buckets.pop(holder, (0.0, now_s))
        left = max(0.0, level - (now_s - since_s) / SECONDS_FOR_ONE)
        is_over = left + 1 > MAX_AT_ONCE
        self._buckets[holder] = (left if is_over else left + 1, now_s)
        if len(self._buckets) > FailureLimit.MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        wait_s = math.ceil((left + 1 - MAX_AT_ONCE) * SECONDS_FOR_ONE) if is_over else 0
        return Failure(begins_burst=not left, wait_s=wait_s)

    def __len__(self) -> int:
        return len(self._buckets)


def _holder(address: str) -> str:
    """Return the key for all addresses of one client."""
    ip = ip_of(address)
    if ip is None:
        return address[:_OWN_BITS]
    if ip.version == 6:
        return str(ipaddress.ip_network((int(ip), _OWN_BITS), strict=False))
    return str(ip)


def need_of(category: str, *, names_model: bool = False, is_index: bool = False) -> str:
    """Return OPEN, ANY or the scope that a call needs; an unknown call needs `control`.

    The repository index only reads, and its entries about a model are shown only to clients that
    may see the model.
    """
    if is_index or (category == "health" and names_model):
        return ANY
    return _BY_CATEGORY.get(category, CONTROL)


class BearerTokens:
    def __init__(self, path: str, *, counts_text: bool = True) -> None:
        """Read the token file. While it is unusable, all tokens are refused.

        Without `counts_text` a file that limits LLM tokens is unusable.
        """
        self._path = path
        self._counts_text = counts_text
        self._grants: tuple[Grant, ...] = ()
        self._valid: dict[bytes, Grant] = {}
        self._expired: frozenset[bytes] = frozenset()
        #: Names of all tokens that the file has had, by digest: a stream outlives its token.
        self._names: dict[bytes, str] = {}
        self._failures = FailureLimit()
        self._threads = Threads("tokens", 1)
        #: Functions that are called when the set of valid tokens has changed.
        self.on_change = Callbacks()
        self._day = _today()
        #: Marks of the token file: at the last reading, and at the last look.
        self._read_mark = self._seen_mark = mark_of(path)
        self._take_content(self._read())

    # ---------------------------------------------------------------- requests

    def find(self, values: Sequence[str]) -> Grant | None:
        """Find the grant for the values of the authorization header; None without a valid token."""
        return self._valid.get(_digest_of(values))

    def name_of(self, values: Sequence[str]) -> str:
        """Return the name of the token in the header's values, valid or not; "" if unknown."""
        return self._names.get(_digest_of(values), "")

    def check(
        self, values: Sequence[str], address: str, need: str, model: str | None = None
    ) -> Grant:
        """Return the grant of a request that needs this scope, or any.

        `model` is the model that the request names, or "" if it is about the server; with None, the
        caller must call check_target() later. Raises Unauthenticated, TooManyFailures or Forbidden.
        """
        grant = self.find(values)
        if grant is None:
            self._refuse(values, address)
        try:
            if need not in (ANY, *grant.scopes):
                raise refusals.Forbidden(
                    f"The token is not good for this, expecting scope '{need}'", need
                )
            if model is not None:
                check_target(grant, need, model)
        except refusals.Forbidden as error:
            error.token = grant.name
            raise
        return grant

    def _refuse(self, values: Sequence[str], address: str) -> NoReturn:
        tokens = [token for token in map(_token_in, values) if token is not None]
        if not tokens:
            raise refusals.Unauthenticated(
                "This server needs a token, expecting header 'Authorization: Bearer TOKEN'",
                refusals.MISSING,
            )
        failure = self._failures.add(address, time.monotonic())
        if failure.begins_burst:
            _log.warning(
                "%s presents a token that is not valid; more of them are not logged until it "
                "pauses for a while",
                address or "a client",
            )
        if failure.wait_s:
            raise refusals.TooManyFailures(failure.wait_s)
        if len(values) > 1:
            raise refusals.Unauthenticated("Only one token may be presented", refusals.SEVERAL)
        if Grant.digest_of(tokens[0]) in self._expired:
            raise refusals.Unauthenticated("The token has expired", refusals.EXPIRED)
        raise refusals.Unauthenticated("The token is not known to this server", refusals.UNKNOWN)

    # ---------------------------------------------------------------- the file

    def watch(self) -> None:
        """Watch the token file from now on, as long as the loop runs."""
        asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        """Look at the file in a thread, because its file system may be slow."""
        self.watch()
        with suppress(Unavailable):  # the last look goes on, or no thread can begin now
            looking = self._threads.run(self._examine)
            looking.add_done_callback(lambda done: self._take_look(*done.result()))

    def look(self) -> None:
        """Apply the changes of the token file since the last look."""
        self._take_look(*self._examine())

    def _examine(self) -> _Look:
        mark = mark_of(self._path)
        has_changed = mark == self._seen_mark and mark != self._read_mark
        return mark, self._read() if has_changed else None

    def _read(self) -> _Content:
        try:
            return Grant.read_all(self._path, counts_text=self._counts_text)
        except TokenFileError as error:
            return error

    def _take_look(self, mark: Mark, content: _Content | None) -> None:
        self._seen_mark = mark
        if content is not None:
            self._read_mark = mark
            if self._take_content(content):
                _log.info("%s was read anew, it has %d tokens", self._path, len(self._grants))
        elif _today() != self._day:
            self._take(self._grants)

    def _take_content(self, content: _Content) -> bool:
        if isinstance(content, TokenFileError):
            _log.error("%s cannot be used, the tokens are those of before: %s", self._path, content)
            return False
        self._take(content)
        return True

    def _take(self, grants: Iterable[Grant]) -> None:
        self._grants, self._day = tuple(grants), _today()
        self._valid = {
            grant.digest: grant
            for grant in self._grants
            if grant.expires is None or self._day <= grant.expires
        }
        self._expired = frozenset(grant.digest for grant in self._grants) - self._valid.keys()
        self._names.update((grant.digest, grant.name) for grant in self._grants)
        self.on_change()


def bearer_tokens_of(settings: FrontendSettings) -> BearerTokens | None:
    """Return the tokens of a process, watched by the running loop; None if it needs none."""
    if not settings.access.tokens:
        return None
    tokens = BearerTokens(
        settings.access.tokens,
        counts_text=bool(settings.offers.references(TOKENS.name)),
    )
    tokens.watch()
    return tokens


def check_target(grant: Grant | None, need: str, model: str) -> None:
    """Raise Forbidden if the grant is not for the model or, without a model, for the server."""
    if model:
        check_model(grant, model)
    elif grant is not None and need in _OF_SERVER and not grant.is_for_all_models:
        raise refusals.Forbidden(
            "The token is for some models only, and this call is about the server; use a token "
            "for all models"
        )


def check_model(grant: Grant | None, model: str) -> None:
    """Raise Forbidden if there is a grant that does not include the model."""
    if grant is not None and not grant.has_model(model):
        raise refusals.Forbidden(
            "The token is not for this model; its line in the token file needs the name in models"
        )


def check_unload(grant: Grant | None, *, has_dependents: bool) -> None:
    """Raise Forbidden if dependents would be unloaded, and the grant is for some models only."""
    if has_dependents and grant is not None and not grant.is_for_all_models:
        raise refusals.Forbidden("The token is for some models alone: unload without dependents")


def describe_client(grant: Grant | None, address: str) -> str:
    """Describe a client for the log: its token's name, if it has one, and its address."""
    place = address or "an unknown address"
    return place if grant is None else f"token '{grant.name}' of {place}"


def may_see(grant: Grant | None, model: str) -> bool:
    """True if lists for this grant may name the model."""
    return grant is None or grant.has_model(model)


def authorization_in(header: Callable[[bytes], str | None]) -> list[str]:
    """Return the authorization of an HTTP client, from its header or its WebSocket's subprotocols.

    A page in a browser can name subprotocols of a WebSocket, but can set no other header.
    """
    value = header(RAW_HEADER)
    if value is not None:
        return [value]
    offers = (header(b"sec-websocket-protocol") or "").split(",")
    return [f"Bearer {o.strip()[7:]}" for o in offers if o.strip().startswith("bearer.")]


def _token_in(value: str) -> str | None:
    """Return the token in a header's value; None for another authentication scheme."""
    scheme, _, token = value.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _digest_of(values: Sequence[str]) -> bytes:
    """Return the digest of the one token in the header's values; b"" without one."""
    token = _token_in(values[0]) if len(values) == 1 else None
    return b"" if token is None else Grant.digest_of(token)


def _today() -> date:
    return datetime.now(timezone.utc).date()


def may_see_places(grant: Grant | None) -> bool:
    return grant is None or grant.is_for_all_models


def without_places(value: Any, model: str) -> Any:
    """Return a text, or a document of texts, about a model, with paths cut at its directory."""
    if isinstance(value, str):
        return _PATH.sub(lambda match: _shorten(match[0], model), value)
    if isinstance(value, list):
        return [without_places(each, model) for each in value]
    if isinstance(value, dict):
        return {key: without_places(each, model) for key, each in value.items()}
    return value


def _shorten(path: str, model: str) -> str:
    """Return the path from the model's directory on, or else the file's name."""
    names = path.split("/")
    return "/".join(names[names.index(model) :]) if model in names else names[-1]


def visible_entries(index: Iterable[dict[str, Any]], grant: Grant | None) -> list[dict[str, Any]]:
    """Return the entries of the index that a token's holder may see, with or without paths."""
    entries = [entry for entry in index if may_see(grant, entry["name"])]
    if may_see_places(grant):
        return entries
    return [without_places(entry, entry["name"]) for entry in entries]


@contextmanager
def places_hidden(grant: Grant | None, model: str) -> Iterator[None]:
    """Shorten the paths in the error of a call about a model."""
    try:
        yield
    except ZmqTritonError as error:
        if not may_see_places(grant):
            error.args = (without_places(error.text, model),)
        raise
