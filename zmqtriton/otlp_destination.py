"""The destinations of OpenTelemetry's spans, metrics and logs: options over its own variables.

Read at start by the command line, so that errors are reported there, and again by the process that
exports.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_OTLP = "OTEL_EXPORTER_OTLP_"
_DEFAULT_URL = "http://localhost:4318"
#: The spans' kind, as paths and variables have it, and the option with their URL.
_TRACES, _TRACES_URL = "traces", "--trace-config opentelemetry,url"
_SERVICE = "service.name"
#: Triton's name for itself.
_DEFAULT_SERVICE = "triton-inference-server"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class DestinationError(ValueError):
    """Raised if nothing could ever be sent to the destination; the text names the setting."""


class Destination(NamedTuple):
    url: str
    headers: dict[str, str]
    #: Attributes of this server, sent with each message.
    resource: dict[str, str]
    #: Maximum number of waiting spans, maximum number in one message, and maximum wait of the
    #: first.
    max_queue_size: int
    max_batch_size: int
    export_delay_s: float
    #: TLS settings; None without TLS.
    tls: ssl.SSLContext | None

    @property
    def public_url(self) -> str:
        """The URL for the log, without its secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @staticmethod
    def read(
        pairs: Sequence[tuple[str, str]],
        environment: Mapping[str, str],
        kind: str = _TRACES,
        option: str = _TRACES_URL,
    ) -> Destination:
        """Read settings, in order, as --trace-config has them. Raises DestinationError.

        `kind` is what is sent, as paths and variables have it, and `option` has its URL.
        """
        said = dict(pairs)
        url = _url(said.get("url", ""), environment, kind, option)
        of_variable = dict(_parse_baggage(environment.get("OTEL_RESOURCE_ATTRIBUTES", "")))
        resource = {_SERVICE: _DEFAULT_SERVICE, **of_variable}
        resource[_SERVICE] = environment.get("OTEL_SERVICE_NAME") or resource[_SERVICE]
        for text in (value for key, value in pairs if key == "resource"):
            # as in Triton, a setting without a value has its name for it
            name, _, value = text.partition("=")
            resource[name] = value or name
        max_waiting = int(said.get("bsp_max_queue_size", 2048))
        return Destination(
            url=url,
            headers=_headers(environment, kind),
            resource=resource,
            max_queue_size=max_waiting,
            max_batch_size=min(int(said.get("bsp_max_export_batch_size", 512)), max_waiting),
            export_delay_s=int(said.get("bsp_schedule_delay", 5000)) / 1000,
            tls=_tls(environment, kind) if urlsplit(url).scheme == "https" else None,
        )


def _url(said: str, environment: Mapping[str, str], kind: str, option: str) -> str:
    where = f"{_OTLP}{kind.upper()}_ENDPOINT"
    url = said or environment.get(where, "")
    if said:
        where = option
    elif not url:
        where = f"{_OTLP}ENDPOINT"
        url = f"{(environment.get(where) or _DEFAULT_URL).rstrip('/')}/v1/{kind}"
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not url.isprintable() or " " in url:
        raise DestinationError(
            f'Bad option: "{where}".\nOnly http and https addresses are possible. Got {url}'
        )
    return url


def _headers(environment: Mapping[str, str], kind: str) -> dict[str, str]:
    headers = dict(_parse_baggage(_variable("HEADERS", environment, kind)))
    for name, value in headers.items():
        if not (_HEADER.fullmatch(name) and value.isprintable() and value.isascii()):
            # their values are often keys
            raise DestinationError(
                f'Bad option: "{_OTLP}HEADERS".\nNot a header, write NAME=VALUE: {name}'
            )
    return headers


def _tls(environment: Mapping[str, str], kind: str) -> ssl.SSLContext:
    authorities, own, key = (
        _variable(name, environment, kind) or None
        for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
    )
    try:
        context = ssl.create_default_context(cafile=authorities)
        if own is not None:
            context.load_cert_chain(own, key)
    except OSError as error:
        raise DestinationError(
            f'Bad option: "{_OTLP}CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY".\n{error}'
        ) from None
    return context


def _variable(name: str, environment: Mapping[str, str], kind: str) -> str:
    """Return OpenTelemetry's variable of this kind or, if it is not set, the general one."""
    return (
        environment.get(f"{_OTLP}{kind.upper()}_{name}") or environment.get(f"{_OTLP}{name}") or ""
    )


def _parse_baggage(text: str) -> Iterator[tuple[str, str]]:
    """Parse `a=1,b=2`, W3C's baggage; invalid parts are left out."""
    for member in text.split(","):
        name, sign, value = member.partition("=")
        if sign and name.strip():
            yield unquote(name.strip()), unquote(value.strip())
