"""`zmqtriton-ctl debug`: a debugger in an instance, in this terminal."""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S, Client
from zmqtriton_floor.errors import Unavailable
from zmqtriton_standard.ctl import (
    MODEL,
    check_name,
    exit_on_error,
    run_with_client,
    seconds_option,
)

#: An instance opens its socket in this time; it may compute meanwhile.
_OPENS_WITHIN_S = 20.0
_AGAIN_S = 0.05
_BYTES = 1 << 16


@click.command()
@click.argument("model", type=MODEL)
@click.option(
    "--instance",
    default="",
    metavar="N",
    help="Debug this instance: its name, such as m_0_0, or its number from 0 on. Default is one "
    "that waits at a breakpoint(), or the first.",
)
@seconds_option(
    "--timeout",
    text="Seconds without a command after which the model goes on.",
    default=600,
    takes_zero=False,
)
@click.pass_context
def debug(context: click.Context, model: str, instance: str, timeout: float) -> None:
    """Debug an instance of MODEL with pdb, in this terminal.

    It stops at a breakpoint() in its code, or at its next line. Others serve, and the limits of
    time of this instance rest. It goes on after `continue` or `quit`, and when this program ends.
    """
    arguments = {"model": model, "instance": instance, "seconds": timeout}

    def question(client: Client) -> Any:
        check_name(client, model)
        return client.call("debug", arguments, QUICK_TIMEOUT_S)

    answer = run_with_client(context, question)
    where = f" at {answer['place']}" if answer["place"] else ""
    click.echo(f"{answer['instance']}, pid {answer['pid']}{where}. `help` shows the commands.")
    with exit_on_error(), _connected(answer) as connection:
        try:
            _converse(connection)
        except KeyboardInterrupt:
            click.echo("\nThe model goes on.")


def _connected(answer: Mapping[str, Any]) -> socket.socket:
    """Return a connection to the instance. Raises Unavailable if it opens none in time."""
    deadline_s = time.monotonic() + _OPENS_WITHIN_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(f"\0{answer['address']}")
            connection.sendall(f"{answer['token']}\n".encode())
            return connection
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline_s:
                raise Unavailable(
                    f"'{answer['instance']}' has opened no socket ({error.strerror}): its Python "
                    "stands still, or it runs in another network namespace"
                ) from None
            time.sleep(_AGAIN_S)


def _converse(connection: socket.socket) -> None:
    """Pass on the operator's commands and the debugger's texts, until the debugger ends."""
    stream = sys.stdin.buffer
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        try:
            selector.register(stream, selectors.EVENT_READ)
        except (OSError, ValueError):  # no terminal and no pipe, so that it can be read at once
            connection.sendall(stream.read())
            connection.shutdown(socket.SHUT_WR)
        while True:
            for key, _ in selector.select():
                if key.fileobj is connection:
                    data = connection.recv(_BYTES)
                    if not data:
                        return
                    click.echo(data.decode("utf-8", "replace"), nl=False)
                elif data := os.read(key.fd, _BYTES):
                    connection.sendall(data)
                else:
                    selector.unregister(stream)
                    connection.shutdown(socket.SHUT_WR)
