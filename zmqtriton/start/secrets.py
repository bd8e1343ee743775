"""Secrets: the keys of restricted APIs, and the files of tokens and of certificates' keys.

They reach the processes that check them, with their Bootstrap, and nothing else: no log, no command
line, no model.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zmqtriton import addons
from zmqtriton.options import Options, Restriction, option_of
from zmqtriton.options.values import RESTRICTING_OPTIONS
from zmqtriton.roles import BROKER, GRPC, HTTP, LOCAL_SERVICES, METRICS, STUB
from zmqtriton_floor import prctl, token_file
from zmqtriton_floor.metrics import TOKENS
from zmqtriton_floor.settings.frontends import Access, Tls

_log = logging.getLogger(__name__)

#: Begins a value that is read from a file; doubled, it begins a value with this character.
_FILE_MARK = "@"
_MAX_BYTES = 4096


class SecretError(Exception):
    """Raised when a key cannot be read; the text is for the server's operator."""


def resolve_key_files(options: Options) -> Options:
    """Return the options with the keys from files. Raises SecretError."""
    resolved: dict[str, Any] = {
        name: tuple(_resolve_value(name, group) for group in options.value(name))
        for name in RESTRICTING_OPTIONS
    }
    here = {name: resolved.pop(name) for name in options.of_add_ons.keys() & resolved.keys()}
    return dataclasses.replace(options, **resolved, of_add_ons={**options.of_add_ons, **here})


def _resolve_value(option: str, group: Restriction) -> Restriction:
    value = group.value
    if not _is_file_reference(group):
        return group._replace(
            value=value.removeprefix(_FILE_MARK) if value[:2] == _FILE_MARK * 2 else value
        )
    # A relative name is one of the service's credentials, if it has any.
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY", ""), value[1:])
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        text = data.decode().rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SecretError(f"{option_of(option)}: {path}: {reason}") from None
    if not text or len(data) > _MAX_BYTES or not text.isprintable():
        raise SecretError(f"{option_of(option)}: {path}: must be one line with a key")
    return group._replace(value=text)


def _is_file_reference(group: Restriction) -> bool:
    return group.value.startswith(_FILE_MARK) and not group.value.startswith(_FILE_MARK * 2)


def check_tokens(options: Options) -> None:
    """Check the file of tokens, and warn of unwise settings. Raises SecretError."""
    path = options.tokens
    if not path:
        return
    try:
        grants = token_file.Grant.read_all(
            path, counts_text=bool(addons.offers_in_use(options.value).references(TOKENS.name))
        )
        is_readable = bool(os.stat(path).st_mode & stat.S_IROTH)
    except (token_file.TokenFileError, OSError) as error:
        raise SecretError(f"--tokens={path}: {error}") from None
    if not grants:
        _log.warning(
            "--tokens=%s: there is no token, so all requests are refused; `zmqtriton token new` "
            "makes one",
            path,
        )
    if is_readable:
        _log.warning("--tokens=%s: all users of this machine may read it; chmod 600 it", path)
    for service in ("http", "grpc"):
        address = getattr(options, f"{service}_address")
        is_served = getattr(options, f"allow_{service}")
        is_local = address in ("localhost", "::1") or address.startswith("127.")
        if is_served and not getattr(options, f"{service}_use_ssl") and not is_local:
            _log.warning(
                "tokens come unencrypted to %s, unless something before the server decrypts: "
                "--%s-use-ssl",
                address,
                service,
            )


def access_by_role(options: Options) -> dict[str, Access]:
    """Return the secrets of each role that checks clients."""
    tokens = options.tokens
    http_tls = Tls(
        options.http_server_cert,
        options.http_server_key,
        options.http_root_cert if options.http_use_ssl_mutual else "",
    )
    grpc_tls = Tls(
        options.grpc_server_cert,
        options.grpc_server_key,
        options.grpc_root_cert if options.grpc_use_ssl_mutual else "",
    )
    return {
        HTTP: Access(
            tokens,
            options.http_restricted_api,
            options.http_allowed_origin,
            http_tls if options.http_use_ssl else None,
        ),
        GRPC: Access(
            tokens,
            options.grpc_restricted_protocol,
            tls=grpc_tls if options.grpc_use_ssl else None,
        ),
        METRICS: Access(tokens),
        **{
            name: Access(restrictions=options.value(service.restrictions))
            if service.restrictions
            else Access(tokens)
            for name, service in addons.services().items()
        },
    }


def cache_secrets() -> dict[str, str]:
    """Return new secrets for the keys in the response cache, by role.

    A model's keys tell nothing about a client's: it could make answers for other requests.
    """
    clients, models = os.urandom(32).hex(), os.urandom(32).hex()
    return {
        **dict.fromkeys((HTTP, GRPC, *LOCAL_SERVICES), clients),
        **dict.fromkeys((STUB, BROKER), models),
    }


def hide_from_command_line(options: Options) -> None:
    """Overwrite the keys in the process's command line with asterisks."""
    values = [
        group.value
        for name in RESTRICTING_OPTIONS
        for group in options.value(name)
        if not _is_file_reference(group)
    ]
    if values:
        start, end = prctl.layout().arg_start, prctl.layout().arg_end
        for position, size in _find_values(ctypes.string_at(start, end - start), values):
            ctypes.memset(start + position, ord("*"), size)


def _find_values(command_line: bytes, values: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Return the positions and lengths of keys in a command line."""
    position = 0
    for word in command_line.split(b"\0"):
        for value in {value.encode() for value in values}:
            if word.endswith(b"=" + value):
                yield position + len(word) - len(value), len(value)
        position += len(word) + 1
