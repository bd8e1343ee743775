"""The command, server, model and time that the user's words select, completed or corrected."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from zmqtriton.sdk.process import NoServerError, ServerSelector
from zmqtriton.sdk.wire import ZmqTritonError, errors

_OPTIONS = ("--server", "--runtime-directory")
_THIS_MACHINE = frozenset({"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})
_COMPLETE_WITHIN_S = 1.0

_C = TypeVar("_C", bound=Callable[..., Any])


def seconds_option(
    *names: str,
    text: str,
    default: float | None = None,
    minimum: float = 0,
    takes_zero: bool = True,
) -> Callable[[_C], _C]:
    """Return an option of seconds, with its default at the end of its help."""
    kind = click.FloatRange(minimum, min_open=not takes_zero)
    usual = "any time" if default is None else f"{default:g}"
    help_text = f"{text} Default is {usual}."
    return click.option(*names, default=default, type=kind, metavar="S", help=help_text)


class CommandGroup(click.Group):
    """A group of commands; for an unknown name it suggests a similar one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises UsageError, with the name that was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = errors.closest_match(args[0], self.list_commands(ctx))
            if not meant:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{meant}'?", ctx) from None


def move_to_front(words: Sequence[str]) -> list[str]:
    """Return the words with the options that choose a server first."""
    chosen: list[str] = []
    others: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            others += [word, *left]
        elif word in _OPTIONS:
            chosen += [word, *islice(left, 1)]
        elif word.startswith(tuple(f"{option}=" for option in _OPTIONS)):
            chosen.append(word)
        else:
            others.append(word)
    return [*chosen, *others]


def parse_server(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return an id, a pid or a port as given; for an address its port. Raises BadParameter."""
    if ":" not in value or value.startswith("pid:"):
        return value
    try:
        parts = urlsplit(value if "://" in value else f"//{value}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise click.BadParameter(f"'{value}' must be a URL: {error}") from None
    if host not in _THIS_MACHINE | {socket.gethostname().lower()}:
        raise click.BadParameter(f"'{host}' is another machine; run zmqtriton-ctl there")
    if port is None:
        raise click.BadParameter(f"'{value}' has no port; write HOST:PORT")
    return f":{port}"


class _ModelName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The name of a model; a shell completes it with names of the server's models."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        chosen = ctx.find_root().params
        selector = ServerSelector(chosen.get("runtime_directory") or "", chosen.get("server") or "")
        try:
            with selector.connect() as client:
                index = client.call("index", {"ready": False}, timeout_s=_COMPLETE_WITHIN_S)
        except (NoServerError, ZmqTritonError):
            return []  # nobody knows any
        names = dict.fromkeys(entry["name"] for entry in index)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


MODEL = _ModelName()
