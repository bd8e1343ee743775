"""`zmqtriton-ctl debug`: a debugger in an instance, in this terminal or in the user's editor.

For an editor, which connects over TCP, this program listens on the loopback address and passes on
what comes from programs of its own user. The instance itself opens no port.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
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
_LOOPBACK = "127.0.0.1"
#: State of a connection in the kernel's table.
_ESTABLISHED = "01"


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
@click.option("--pdb", is_flag=True, help="Use pdb even if debugpy is in the model's environment.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=5678,
    show_default=True,
    help="Port of 127.0.0.1 for the editor, with debugpy; 0 is a free one.",
)
@click.pass_context
def debug(
    context: click.Context, model: str, instance: str, timeout: float, pdb: bool, port: int
) -> None:
    """Debug an instance of MODEL: with debugpy in your editor, or with pdb in this terminal.

    debugpy is used if the model's environment has it. The model stops at a breakpoint() in its
    code, at the breakpoints of the editor, or with pdb at its next line. Others serve, and the
    limits of time of this instance rest. It goes on when the editor disconnects, after pdb's
    `continue` or `quit`, and when this program ends.
    """
    arguments = {"model": model, "instance": instance, "seconds": timeout}

    def question(client: Client) -> Any:
        check_name(client, model)
        return client.call("debug", arguments, QUICK_TIMEOUT_S)

    answer = run_with_client(context, question)
    where = f" at {answer['place']}" if answer["place"] else ""
    about = f"{answer['instance']}, pid {answer['pid']}{where}."
    with exit_on_error(), _connected(answer, is_pdb=pdb) as connection:
        try:
            if _read_line(connection) == "debugpy":
                click.echo(about)
                _serve_editor(connection, model, port)
                click.echo("The model goes on.")
            else:
                click.echo(f"{about} `help` shows the commands.")
                _converse(connection)
        except KeyboardInterrupt:
            click.echo("\nThe model goes on.")


def _connected(answer: Mapping[str, Any], *, is_pdb: bool) -> socket.socket:
    """Return a connection to the instance. Raises Unavailable if it opens none in time."""
    deadline_s = time.monotonic() + _OPENS_WITHIN_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(f"\0{answer['address']}")
            connection.sendall(f"{answer['token']}{' pdb' * is_pdb}\n".encode())
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


def _read_line(connection: socket.socket) -> str:
    """Return the debugger that answers; "" if the session is over."""
    data = b""
    while (more := connection.recv(1)) not in (b"", b"\n"):
        data += more
    return data.decode()


def _serve_editor(connection: socket.socket, model: str, port: int) -> None:
    """Wait for the user's editor, and pass on what it and debugpy say, until one of them ends."""
    with socket.create_server((_LOOPBACK, port)) as listener:
        place = {"host": _LOOPBACK, "port": listener.getsockname()[1]}
        attach = {"name": model, "type": "debugpy", "request": "attach", "connect": place}
        click.echo(
            f"Attach your editor to {_LOOPBACK}:{place['port']}. VS Code does it with this "
            f"configuration in launch.json:\n\n    {json.dumps(attach)}\n\n"
            "The model goes on when the editor disconnects, and at Ctrl-C. For pdb use --pdb."
        )
        editor = _accepted(listener, connection)
    if editor is not None:
        with editor:
            _pass_on(connection, editor)


def _accepted(listener: socket.socket, connection: socket.socket) -> socket.socket | None:
    """Return a connection of this user's editor; None if the session ends before one comes."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is connection:
                    return None
                editor, (_, port) = listener.accept()
                if _is_ours(port, listener.getsockname()[1]):
                    return editor
                editor.close()
                click.echo("A connection of another user was refused.")


def _is_ours(port: int, own_port: int) -> bool:
    """Return whether a process of this user holds the other end of a connection."""
    users = {str(os.getuid()), os.environ.get("SUDO_UID", "")}
    ends = [
        f"{int.from_bytes(socket.inet_aton(_LOOPBACK), sys.byteorder):08X}:{one:04X}"
        for one in (port, own_port)
    ]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, _, _, _, user, _, inode, *_ = line.split()
        if [here, there] == ends:
            # of one that was closed already the user is unknown, and reads as root
            return state == _ESTABLISHED and inode != "0" and user in users
    return False


def _pass_on(connection: socket.socket, editor: socket.socket) -> None:
    """Pass on what both say; return when either has gone."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ, editor)
        selector.register(editor, selectors.EVENT_READ, connection)
        try:
            while True:
                for key, _ in selector.select():
                    data = os.read(key.fd, _BYTES)
                    if not data:
                        return
                    key.data.sendall(data)
        except OSError:
            return  # the editor was killed
