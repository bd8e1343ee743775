"""`zmqtriton-ctl replace`: another server takes the place of the running one.

It is started as that one was, and takes over by `--take-over`. Until it serves, whatever goes wrong
changes nothing for the running one.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from zmqtriton import systemd
from zmqtriton.control_client.client import QUICK_TIMEOUT_S, Client, NoServerError
from zmqtriton.ctl.asking import run_with_client
from zmqtriton.ctl.output import print_note, print_result, with_format
from zmqtriton_floor.errors import Unavailable

_LOOK_EVERY_S = 0.2
#: A server that was told to stop before it serves ends in this time, or is killed.
_END_WITHIN_S = 30.0
_MAX_LINES = 5
_LOADS = "the new one can start; it loads its models now"
_GOES_ON = "the running server goes on"


@click.command()
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--program",
    default="",
    metavar="PATH",
    help="The zmqtriton to start. Default is the running server's, in its newest state.",
)
@click.option(
    "--timeout",
    default=None,
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long the new server may take until it serves. Default is any time.",
)
@click.option(
    "--one-by-one",
    is_flag=True,
    help="For models that do not fit twice: the new server takes the ports at once, and loads them "
    "when the running one has ended. Requests wait.",
)
@with_format
@click.pass_context
def replace(
    context: click.Context,
    options: tuple[str, ...],
    *,
    program: str,
    timeout: float | None,
    one_by_one: bool,
    form: str,
) -> None:
    """Replace the server by a new one without a failed request.

    The new one has the options of the running one, or those behind `--`. It loads its models, takes
    the ports over, and the running one ends when its requests have. If it cannot start, the running
    one goes on and the exit status is 1. To go back, do the same with the earlier program or
    options.
    """
    began_s = time.monotonic()

    def question(client: Client) -> dict[str, Any]:
        return _replace(client, program, options, timeout, one_by_one=one_by_one)

    document = run_with_client(context, question, to_change=True)
    seconds = round(time.monotonic() - began_s, 1)
    pid, before = document["pid"], document["before"]
    if one_by_one:
        text = f"has the ports after {seconds} s, and loads the models when pid {before} has ended"
    else:
        text = f"serves after {seconds} s; pid {before} ends when its requests have"
    print_result(form, {**document, "seconds": seconds}, f"pid {pid} {text}")


def _replace(
    client: Client,
    program: str,
    options: Sequence[str],
    timeout_s: float | None,
    *,
    one_by_one: bool,
) -> dict[str, Any]:
    """Replace the server; return the pids of both. Raises ZmqTritonError."""
    client.begin("succession.start", {"invocation": systemd.invocation(os.environ)})
    start, output = client.finish_with_descriptors(QUICK_TIMEOUT_S)
    words = [program] if program else start["program"]
    options = options or start["words"]
    environment = _environment(start, os.environ)
    print_note(f"the running server is {client.identity.describe()}, {client.identity.version}")
    _check([*words, "check", "--json", "--", *options], start["directory"], environment)
    print_note(_forecast(client) if one_by_one else _LOADS)
    once = ["--take-over", *(["--one-by-one"] if one_by_one else [])]
    log = _Log(output[-1])
    process = subprocess.Popen(
        [*words, *options, *once],
        stdin=subprocess.DEVNULL,
        stdout=output[0],
        stderr=output[-1],
        cwd=start["directory"],
        env=environment,
        start_new_session=True,
    )
    # of systemd, whose time is over
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _wait(client, process, log, timeout_s)
    except (KeyboardInterrupt, Unavailable) as error:
        # else it has taken over just now, or is the only one that is left
        if not client.line.ended and not client.line.wait(0.0):
            _end(process)
        if isinstance(error, KeyboardInterrupt):
            raise Unavailable(f"interrupted; {_GOES_ON}") from None
        raise
    return {"pid": process.pid, "before": client.identity.pid}


def _forecast(client: Client) -> str:
    """Return how long requests wait at most, by what the running server has measured."""
    rows = client.call("options", {}, QUICK_TIMEOUT_S)
    rest_s = next(float(r["value"]) for r in rows if r["option"] == "exit-timeout-secs")
    loads = client.call("status", {}, QUICK_TIMEOUT_S)["loads"]
    seconds = sorted(((max(each.values()), name) for name, each in loads.items()), reverse=True)
    load_s = sum(each for each, _ in seconds)
    longest = ", ".join(f"{name} {each:.1f}" for each, name in seconds[:_MAX_LINES])
    return (
        f"the new one can start; requests wait for up to {rest_s + load_s:.0f} s: requests under "
        f"way end within {rest_s:g} s, and the models loaded in {load_s:.1f} s ({longest})"
    )


def _environment(start: Mapping[str, Any], own: Mapping[str, str]) -> dict[str, str]:
    """Return the running server's environment; in its service, what the service has now."""
    before: Mapping[str, str] = start["environment"]
    is_reload = start["invocation"] and start["invocation"] == systemd.invocation(own)
    kept = {name: before[name] for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC") if name in before}
    if "NOTIFY_SOCKET" not in kept or not is_reload:
        own = before
    others = {name: own[name] for name in own if name not in systemd.SERVICE_VARIABLES}
    return others | kept


def _check(command: Sequence[str], directory: str, environment: Mapping[str, str]) -> None:
    """Raise Unavailable if no server can start with the options of this command.

    Whether it serves without a model that has errors is its own decision.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=directory, env=environment
        )
    except OSError as error:
        raise Unavailable(f"cannot run {command[0]}: {error.strerror}; {_GOES_ON}") from None
    try:
        findings = json.loads(done.stdout)["findings"]
    except ValueError:
        said = [(done.stdout + done.stderr).strip()]
    else:
        errors = [finding for finding in findings if finding["severity"] == "error"]
        said = [finding["text"] for finding in errors if not finding["model"]]
        for finding in errors:
            if finding["model"]:
                print_note(f"model '{finding['model']}': {finding['text']}")
    if said:
        raise Unavailable("\n".join([f"the new server could not start; {_GOES_ON}:", *said]))


class _Log:
    """The output of the new server, if it is a file."""

    def __init__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._path = Path(f"/proc/self/fd/{descriptor}") if stat.S_ISREG(status.st_mode) else None
        self._begin = status.st_size

    def errors(self) -> str:
        """Return the last errors; "" if they are elsewhere."""
        if self._path is None:
            return ""
        try:
            with self._path.open("rb") as file:
                file.seek(self._begin)
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return "\n".join([line for line in lines if line.startswith(("E", "error"))][-_MAX_LINES:])


def _wait(
    client: Client, process: subprocess.Popen[bytes], log: _Log, timeout_s: float | None
) -> None:
    """Wait until the new server serves. Raises Unavailable if it does not."""
    client.begin("succession.wait")
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while not client.line.wait(_LOOK_EVERY_S):
        if process.poll() is not None:
            said = log.errors() or "its log says why"
            raise Unavailable(
                f"the new server has ended with status {process.returncode}; {_GOES_ON}:\n{said}"
            )
        if deadline_s is not None and time.monotonic() > deadline_s:
            raise Unavailable(f"the new server does not serve after {timeout_s:g} s; {_GOES_ON}")
    try:
        client.finish(QUICK_TIMEOUT_S)
    except NoServerError:
        text = f"the running server has ended; pid {process.pid} serves when its models are loaded"
        raise Unavailable(text) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
