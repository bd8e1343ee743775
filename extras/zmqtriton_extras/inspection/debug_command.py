"""`zmqtriton-ctl debug`: a debugger in an instance, in this terminal or in the user's editor.

For an editor, which connects over TCP, this program listens on the loopback address. It lets in a
program of its own user that begins as an editor does, which no web page can. The instance itself
opens no port.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import selectors
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from zmqtriton.sdk.process import Client, ToolListener, describe_listener, user_of_client
from zmqtriton.sdk.wire import Unavailable, logs
from zmqtriton_extras.inspection.debugger import EDITOR_BEGINS
from zmqtriton_standard.ctl.asking import exit_on_error, run_with_client
from zmqtriton_standard.ctl.selecting import MODEL, seconds_option

#: Maximum time until an instance has opened its socket and named its debugger. It may compute
#: meanwhile, and debugpy takes a while to import.
_OPENS_WITHIN_S = 20.0
_AGAIN_S = 0.05
_BYTES = 1 << 16
#: A session without an editor ends before.
_MOST_SECONDS = 2 * 86_400
_LOOPBACK = "127.0.0.1"
_EDITOR_HEAD = re.compile(
    rb"Content-Length: \d{1,9}\r\n(Content-(Length: \d{1,9}|Type: [ -~]{1,100})\r\n)*\r\n"
)
#: The lines with which an instance names its debugger.
_NAMES = {b"pdb\n": "pdb", b"debugpy\n": "debugpy"}


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
    """Debug an instance of MODEL in your editor, or with pdb.

    debugpy is used if the model's environment has it. The model stops at a breakpoint() in its
    code, at the breakpoints of the editor, or with pdb at its next line. Other
    instances serve, and the time limits of this instance are paused. The model continues when the
    editor disconnects, after pdb's `continue` or `quit`, and when this program ends.
    """
    arguments = {"model": model, "instance": instance, "seconds": timeout}

    def question(client: Client) -> Any:
        client.check_model(model)
        return client.call("debug", arguments, Client.QUICK_TIMEOUT_S)

    answer = run_with_client(context, question)
    where = f" at {answer['place']}" if answer["place"] else ""
    about = logs.escape(f"{answer['instance']}, pid {answer['pid']}{where}.")
    with exit_on_error():
        connection, name = _connected(answer, is_pdb=pdb)
    with exit_on_error(), connection:
        try:
            if name == "debugpy":
                click.echo(about)
                _serve_editor(connection, model, port)
                click.echo("The model goes on.")
            else:
                click.echo(f"{about} `help` shows the commands.")
                _converse(connection)
        except KeyboardInterrupt:
            click.echo("\nThe model goes on.")


def _connected(answer: Mapping[str, Any], *, is_pdb: bool) -> tuple[socket.socket, str]:
    """Return a connection to the instance, and the name of its debugger.

    Raises Unavailable with the reason if there is none in time.
    """
    deadline_s = time.monotonic() + _OPENS_WITHIN_S
    said = f"{answer['token']}{' pdb' * is_pdb}\n".encode()
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(max(_AGAIN_S, deadline_s - time.monotonic()))
            connection.connect(f"\0{answer['address']}")
            connection.sendall(said)
            return connection, _read_name(connection, deadline_s)
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline_s:
                raise Unavailable(
                    f"'{answer['instance']}' has not begun a session in {_OPENS_WITHIN_S:g} s "
                    f"({error.strerror or error}): its Python stands still, or it runs in another "
                    "network namespace. Its model goes on"
                ) from None
            time.sleep(_AGAIN_S)


def _read_name(connection: socket.socket, deadline_s: float) -> str:
    """Return the name of the debugger. Raises OSError if the instance sends none in time."""
    data = b""
    while data not in _NAMES:
        connection.settimeout(max(_AGAIN_S, deadline_s - time.monotonic()))
        # byte by byte: what follows is the debugger's
        if not (more := connection.recv(1)) or time.monotonic() > deadline_s:
            raise ConnectionError("the instance has closed the connection; start the command again")
        data += more
    connection.settimeout(None)
    return _NAMES[data]


def _converse(connection: socket.socket) -> None:
    """Pass on the operator's commands and the debugger's texts, until the debugger ends."""
    stream, decoder = sys.stdin.buffer, codecs.getincrementaldecoder("utf-8")("replace")
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
                    # the model chooses most of it
                    click.echo(logs.escape_lines(decoder.decode(data)), nl=False)
                elif data := os.read(key.fd, _BYTES):
                    connection.sendall(data)
                else:
                    selector.unregister(stream)
                    connection.shutdown(socket.SHUT_WR)


def _serve_editor(connection: socket.socket, model: str, port: int) -> None:
    """Wait for the user's editor, and pass on its and debugpy's messages until one of them ends."""
    try:
        listener = socket.create_server((_LOOPBACK, port))
    except OSError as error:
        holder = logs.escape(describe_listener(port))
        raise Unavailable(
            # create_server() adds its arguments
            f"port {port} of {_LOOPBACK} cannot be opened: {os.strerror(error.errno or 0)}"
            f"{holder and f', by {holder}'}. Take another one with --port, or a free one with "
            "--port 0. The model goes on"
        ) from None
    place = {"host": _LOOPBACK, "port": listener.getsockname()[1]}
    attach = {"name": model, "type": "debugpy", "request": "attach", "connect": place}
    click.echo(
        f"Attach your editor to {_LOOPBACK}:{place['port']}. VS Code does it with this "
        f"configuration in launch.json:\n\n    {json.dumps(attach)}\n\n"
        "The model goes on when the editor disconnects, and at Ctrl-C. For pdb use --pdb."
    )
    sudo = os.environ.get("SUDO_UID", "")
    users = {os.getuid(), int(sudo) if sudo.isdecimal() else os.getuid()}
    reasons = set[str]()

    def refuse(why: str) -> None:
        if why not in reasons:
            reasons.add(why)
            click.echo(f"A connection {why} was refused.")

    tools = ToolListener(listener, users, editor_head, user_of=user_of_client, on_refusal=refuse)
    caller = tools.admit(time.monotonic() + _MOST_SECONDS, connection)
    if caller is not None:
        editor, head = caller
        with editor:
            editor.setblocking(True)
            connection.sendall(head)
            _pass_on(connection, editor)


def editor_head(data: bytes) -> int:
    """Return the size of a Debug Adapter Protocol head; 0 for an incomplete one, else -1."""
    whole = _EDITOR_HEAD.match(data)
    if whole:
        return whole.end()
    is_part = EDITOR_BEGINS.startswith(data[: len(EDITOR_BEGINS)]) and b"\r\n\r\n" not in data
    return 0 if is_part else -1


def _pass_on(connection: socket.socket, editor: socket.socket) -> None:
    """Pass bytes on in both directions; return when either side has gone."""
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
