"""Access control: bearer tokens, keys of restricted APIs, and requests from foreign web pages.

Applied while the table of routes is built; an unrestricted route costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

import falcon
import falcon.asgi
from falcon.constants import COMBINED_METHODS

from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.access.bearer_tokens import (
    OPEN,
    RAW_HEADER,
    bearer_tokens_of,
    describe_client,
    need_of,
)
from zmqtriton_frontends.gateway.control_calls import on_behalf_of
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.inference.restrictions import RequiredHeader, by_category
from zmqtriton_frontends.process.hosts import AllowedHosts, host_name, host_refusal, is_address

Responder = Callable[..., Awaitable[None]]


class Route(NamedTuple):
    method: str
    path: str
    #: Category that an operator may restrict; empty if the route reveals nothing about this
    #: server.
    category: str
    responder: Responder
    #: Category whose restriction holds unless the own category has one.
    general_category: str = ""
    #: Returns whether a path of the template is there, by the template's values: another one is
    #: answered 404 before all checks, as if no route had it. None: each one is.
    is_there: Callable[..., bool] | None = None

    @property
    def need(self) -> str:
        """Return its need where tokens are needed: OPEN, ANY or a scope."""
        return need_of(
            self.general_category or self.category,
            names_model="{model" in self.path,
            is_index=self.path.endswith(_READING),
        )


class Headers(Protocol):
    """The headers of a request, as the checks read them."""

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, given in lower case; commas join repeated ones."""


#: Returns the reason of a refusal; "" for a request that may go on.
Check = Callable[[Headers], str]


#: A check before an answer, and before it the status of the refusal.
AccessCheck = tuple[int, Check]


#: Categories that change the server. Any web page in a browser on this machine can send such
#: requests without a preflight; it cannot leave out the header `Origin`.
_CHANGING = frozenset({"model-repository", "shared-memory", "trace", "logging", "steering"})
#: Content types that any page may send: those of forms, and none.
_UNASKED_TYPES = frozenset(
    {"", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"}
)
#: Headers of inferences that a page cannot send without a preflight.
_ASKED_HEADERS = (b"inference-header-content-length", RAW_HEADER)
#: End of paths that are asked by POST, though they change nothing.
_READING = "/index"
#: Origins that are logged in one process; a hostile client may invent any number.
_MAX_REFUSED = 100
_log = logging.getLogger(__name__)
_NOT_FOR_PAGES = "This API is not open to web pages, allow one with --http-allowed-origin"


class AccessRules:
    """The access settings of each category; one object for a process."""

    def __init__(self, settings: FrontendSettings) -> None:
        self._restrictions = by_category(settings.access.restrictions)
        self._origins = frozenset(settings.access.allowed_origins)
        #: Origins whose pages were refused, and logged.
        self._refused: set[str] = set()
        self._hosts = AllowedHosts(settings.http.bound_address, settings.http.allowed_hosts)
        #: Bearer tokens of the clients; None if no request needs one.
        self.tokens = bearer_tokens_of(settings)

    def checks(self, route: Route) -> list[AccessCheck]:
        """Return the checks before each response of the route; they precede the token's check."""
        checks: list[AccessCheck] = [(421, self._check_host)] if self._hosts.is_checked else []
        restriction = self._restriction(route)
        if restriction is not None:
            checks.append((403, _key_check(restriction)))
        is_change = route.method != "GET" and not route.path.endswith(_READING)
        if is_change and route.category in _CHANGING:
            checks.append((403, self._check_origin))
        elif "inference" in (route.category, route.general_category):
            checks.append((403, self._check_unasked))
        return checks

    def responder(self, route: Route) -> Responder:
        """Return the route's own responder behind its checks."""
        is_change = route.method != "GET" and route.category in _CHANGING
        responder = _named(route.responder) if is_change else route.responder
        return self._behind(route, self.checks(route), responder)

    def others(self, route: Route, methods: list[str]) -> dict[str, Responder]:
        """Return a responder for methods that the path of a route does not have.

        Falcon's own answer reveals the path's methods, and a restricted path must reveal nothing
        without the key or the token.
        """

        async def refuse(req: HttpRequest, resp: falcon.asgi.Response, **_: Any) -> None:
            raise falcon.HTTPMethodNotAllowed(methods)

        restriction = self._restriction(route)
        checks = [] if restriction is None else [(403, _key_check(restriction))]
        guarded = self._behind(route, checks, refuse)
        if guarded is refuse:
            return {"OPTIONS": refuse}
        return {method: guarded for method in COMBINED_METHODS if method not in methods}

    def refusal(
        self, scope: dict[str, Any], need: str, model: str = ""
    ) -> refusals.AccessRefused | None:
        """Return the refusal of a request before its route is known; None if it may continue."""
        if self.tokens is None:
            return None
        values = [value.decode("latin-1") for name, value in scope["headers"] if name == RAW_HEADER]
        place = scope.get("client")
        address = place[0] if place else ""
        try:
            self.tokens.check(values, address, need, model)
        except refusals.AccessRefused as error:
            refusals.report(
                refusals.Source("http", address, f"{scope['method']} {scope['path']}"), error, model
            )
            return error
        return None

    def _behind(
        self, route: Route, checks: Sequence[AccessCheck], responder: Responder
    ) -> Responder:
        """Return a responder of the route behind these checks, and behind the token's."""
        tokens, need, is_there = self.tokens, route.need, route.is_there
        if need == OPEN:
            tokens = None
        if not checks and tokens is None and is_there is None:
            return responder

        async def checked(req: HttpRequest, resp: falcon.asgi.Response, **named: Any) -> None:
            if is_there is not None and not is_there(**named):
                raise falcon.HTTPNotFound
            try:
                for status, check in checks:
                    if problem := check(req):
                        raise falcon.HTTPError(status, description=problem)
                if tokens is not None:
                    model = named.get("model", "")
                    req.grant = tokens.check(req.authorization, req.address, need, model)
            except (refusals.AccessRefused, falcon.HTTPError):
                await req.drop_body()
                raise
            await responder(req, resp, **named)

        return checked

    def _restriction(self, route: Route) -> RequiredHeader | None:
        own = self._restrictions.get(route.category)
        return own or self._restrictions.get(route.general_category)

    def _check_host(self, req: Headers) -> str:
        host = req.header(b"host")
        return "" if host is None or self._hosts.admits(host) else host_refusal(host)

    def _check_origin(self, req: Headers) -> str:
        origin = req.header(b"origin")
        if origin is None or origin in self._origins or _is_own_page(origin, req):
            return ""
        self._log_refusal(origin)
        return _NOT_FOR_PAGES

    def _log_refusal(self, origin: str) -> None:
        """Log each origin once: a browser does not show its page why a WebSocket was refused."""
        if origin not in self._refused and len(self._refused) < _MAX_REFUSED:
            self._refused.add(origin)
            _log.warning("a page of '%s' is refused: %s", origin, _NOT_FOR_PAGES)

    def _check_unasked(self, req: Headers) -> str:
        """Refuse requests that a browser sends for any page without a preflight.

        All other requests need a preflight; a server that answers it has allowed the page.
        """
        origin = req.header(b"origin")
        if origin is None or not _is_sent_unasked(req) or _is_of_same_origin(origin, req):
            return ""
        return self._check_origin(req)


def _is_sent_unasked(req: Headers) -> bool:
    """True if a page of another origin may send a request like this (the Fetch standard, 2.2.2)."""
    kind = (req.header(b"content-type") or "").partition(";")[0].strip(" \t").lower()
    return kind in _UNASKED_TYPES and all(req.header(name) is None for name in _ASKED_HEADERS)


def _is_of_same_origin(origin: str, req: Headers) -> bool:
    """True if the request's page came from the same host, perhaps through a proxy.

    AllowedHosts checks names that anybody may have pointed to this host.
    """
    is_said = req.header(b"sec-fetch-site") == "same-origin"
    return is_said or origin.partition("://")[2] == req.header(b"host")


def _is_own_page(origin: str, req: Headers) -> bool:
    """True if the page is one of this server's, by its address.

    A host name would not prove this: anybody may have pointed a name to this host.
    """
    host = req.header(b"host") or ""
    name = host_name(host) if origin.partition("://")[2] == host else None
    return name is not None and (name == "localhost" or is_address(name))


def _key_check(restriction: RequiredHeader) -> Check:
    name = restriction.name.encode()
    text = f"This API is restricted, expecting header '{restriction.header}'"

    def check(req: Headers) -> str:
        value = req.header(name)
        # a header that was sent twice has a comma in it and is another value
        values = [] if value is None else [value.encode("latin-1")]
        if restriction.admits(values):
            return ""
        refusals.counts[refusals.KEY] += 1
        return text + restriction.why_not(values)

    return check


def _named(responder: Responder) -> Responder:
    """Wrap the responder of a change, so that the log names the client."""

    async def named(req: HttpRequest, resp: falcon.asgi.Response, **parts: Any) -> None:
        with on_behalf_of(describe_client(req.grant, req.address)):
            await responder(req, resp, **parts)

    return named
