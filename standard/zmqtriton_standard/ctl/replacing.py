"""`zmqtriton-ctl replace`: another server takes the place of the running one.

The new server is started like the running one, and takes over by `--take-over`. If anything fails
before the new server serves, the running one continues unchanged. With `--one-by-one` the running
server has ended before the new one serves: if the new one dies, the old one is started again.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from zmqtriton.sdk.process import Client, NoServerError, ServerSelector, systemd
from zmqtriton.sdk.wire import Unavailable
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.output import print_note, print_result, with_format
from zmqtriton_standard.ctl.selecting import seconds_option

_LOOK_EVERY_S = 0.2
#: Seconds for an old server to appear again, or for a stopped new one to end before it is killed.
_END_WITHIN_S = 30.0
_MAX_LINES = 5
_GOES_ON = "the running server goes on"
_ITS_LOG = "its log says why"


@click.command()
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--program",
    default="",
    metavar="PATH",
    help="The zmqtriton to start. Default is the running server's, as installed now.",
)
@seconds_option("--timeout", text="Seconds that the new server may take until it serves.")
@click.option(
    "--one-by-one",
    is_flag=True,
    help="For models that do not fit twice: the new server takes the ports at once, and loads them "
    "when the running one has ended. Requests wait. If the new one dies by then, the running one "
    "is started again.",
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

    The new server has the options of the running one, or the options after `--`. It loads its
    models and takes the ports over; the running server ends when its requests have ended. If the
    new one cannot start, the running one continues and the exit status is 1. To go back, do the
    same with the earlier program or options.
    """
    began_s = time.monotonic()
    document = run_with_client(
        context,
        lambda client: _replace(
            client, program, options, timeout, context.obj.directory, one_by_one
        ),
        to_change=True,
    )
    seconds = round(time.monotonic() - began_s, 1)
    pid, before = document["pid"], document["before"]
    build = _ask(context.obj.directory, pid, lambda client: client.identity.build)
    document["version"] = build
    as_before = ", the same as before" if build == document["version_before"] else ""
    print_note(f"the new server is {build or 'of an unknown version'}{as_before}")
    end = "has ended" if one_by_one else "ends when its requests have"
    print_result(
        form,
        {**document, "seconds": seconds},
        f"pid {pid} serves after {seconds} s; pid {before} {end}",
    )


def _replace(
    client: Client,
    program: str,
    options: Sequence[str],
    timeout_s: float | None,
    directory: str,
    one_by_one: bool,
) -> dict[str, Any]:
    """Replace the server; return the pids of both. Raises ZmqTritonError.

    `directory` is the servers' runtime directory, if the user has named one.
    """
    client.begin("succession.start", {"invocation": os.environ.get("INVOCATION_ID", "")})
    start, output = client.finish_with_descriptors(Client.QUICK_TIMEOUT_S)
    words = program_words(start, program)
    options = options or start["words"]
    environment = _environment(start, os.environ)
    print_note(f"the running server is {client.identity.describe()}, {client.identity.build}")
    _check([*words, "check", "--json", "--", *options], start["directory"], environment)
    print_note(
        f"the new one can start; {_forecast(client) if one_by_one else 'it loads its models now'}"
    )
    last_errors = partial(_last_errors, output[-1], os.fstat(output[-1]).st_size)
    begin = partial(
        subprocess.Popen,
        stdin=subprocess.DEVNULL,
        stdout=output[0],
        stderr=output[-1],
        cwd=start["directory"],
        env=environment,
        start_new_session=True,
    )
    process = begin([*words, *options, "--take-over", *["--one-by-one"][: bool(one_by_one)]])
    # of systemd, whose time is over
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _wait(client, process, last_errors, timeout_s)
    except (KeyboardInterrupt, Unavailable) as error:
        # else it has taken over just now, or is the only one that is left
        if not client.line.ended and not client.line.wait(0.0):
            _end(process)
        if isinstance(error, KeyboardInterrupt):
            raise Unavailable(f"interrupted; {_GOES_ON}") from None
        raise
    pid = client.identity.pid
    if one_by_one:
        print_note(f"pid {process.pid} has the ports, and loads models when pid {pid} has ended")
        while process.poll() is None and not _ask(directory, process.pid, _is_open):
            time.sleep(_LOOK_EVERY_S)
        if process.returncode is not None:
            text = f"the new server has ended with status {process.returncode}"
            if not start["invocation"]:  # else systemd starts the service again
                with suppress(NoServerError):
                    client.finish(None)  # nothing comes but its end
                again = _start_again(
                    directory, partial(begin, [*start["program"], *start["words"]])
                )
                text += f"; the one before is started again, as pid {again}"
            raise Unavailable(f"{text}:\n{last_errors()}")
    return {"pid": process.pid, "before": pid, "version_before": client.identity.build}


def program_words(start: Mapping[str, Any], named: str) -> Sequence[str]:
    """Return the words that start the new server: a script, but not the running server's Python.

    A link in its path may lead to another environment by now. A server of an earlier version does
    not report its script, which is the word after its Python.
    """
    running: Sequence[str] = start["program"]
    script = named or start.get("script")
    path = os.path.join(start["directory"], running[-1])
    if script is None and len(running) == 2 and os.access(path, os.X_OK):
        script = path
    return [script] if script else running


def _forecast(client: Client) -> str:
    """Return the longest wait of requests in words, estimated from the last loads of models."""
    rows = client.call("options", {}, Client.QUICK_TIMEOUT_S)
    rest_s = next(float(r["value"]) for r in rows if r["option"] == "exit-timeout-secs")
    loads = client.call("status", {}, Client.QUICK_TIMEOUT_S)["loads"]
    seconds = sorted(((max(each.values()), name) for name, each in loads.items()), reverse=True)
    load_s = sum(each for each, _ in seconds)
    longest = ", ".join(f"{name} {each:.1f}" for each, name in seconds[:_MAX_LINES])
    return (
        f"requests wait for up to {rest_s + load_s:.0f} s: requests under way end within "
        f"{rest_s:g} s, and the models loaded in {load_s:.1f} s ({longest})"
    )


def _environment(start: Mapping[str, Any], own: Mapping[str, str]) -> dict[str, str]:
    """Return the running server's environment; in systemd's service, the service's present one."""
    before: Mapping[str, str] = start["environment"]
    is_reload = start["invocation"] and start["invocation"] == own.get("INVOCATION_ID", "")
    kept = {name: before[name] for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC") if name in before}
    if "NOTIFY_SOCKET" not in kept or not is_reload:
        own = before
    return {name: own[name] for name in own if name not in systemd.SERVICE_VARIABLES} | kept


def _check(command: Sequence[str], directory: str, environment: Mapping[str, str]) -> None:
    """Raise Unavailable if no server can start with the options of this command.

    A model with errors need not keep the server from serving, so it is no error here.
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


def _last_errors(output: int, begin: int) -> str:
    """Return the last errors of the new server, or the place of its output if that is no file."""
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(output).st_mode):
            with Path(f"/proc/self/fd/{output}").open("rb") as file:
                file.seek(begin)
                lines = file.read().decode("utf-8", "replace").splitlines()
            errors = [line for line in lines if line.startswith(("E", "error"))]
            return "\n".join(errors[-_MAX_LINES:]) or _ITS_LOG
    return _ITS_LOG


def _wait(
    client: Client,
    process: subprocess.Popen[Any],
    last_errors: Callable[[], str],
    timeout_s: float | None,
) -> None:
    """Wait until the new server serves. Raises Unavailable if it does not."""
    client.begin("succession.wait")
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while not client.line.wait(_LOOK_EVERY_S):
        if process.poll() is not None:
            text = f"the new server has ended with status {process.returncode}; {_GOES_ON}"
            raise Unavailable(f"{text}:\n{last_errors()}")
        if deadline_s is not None and time.monotonic() > deadline_s:
            raise Unavailable(f"the new server does not serve after {timeout_s:g} s; {_GOES_ON}")
    try:
        client.finish(Client.QUICK_TIMEOUT_S)
    except NoServerError:
        raise Unavailable(
            f"the running server has ended; pid {process.pid} serves when its models are loaded"
        ) from None


def _start_again(directory: str, begin: Callable[[], subprocess.Popen[Any]]) -> int:
    """Start the previous server again; return its pid when it has its ports.

    Processes of a killed server keep its ports for a moment longer.
    """
    end_s = time.monotonic() + _END_WITHIN_S
    process = begin()
    while _ask(directory, process.pid, _is_open) is None and time.monotonic() < end_s:
        time.sleep(_LOOK_EVERY_S)
        if process.poll() is not None:
            process = begin()
    return process.pid


def _is_open(client: Client) -> bool:
    """Return whether a server has tried its models."""
    return bool(client.call("is_open", timeout_s=Client.QUICK_TIMEOUT_S))


def _ask(directory: str, pid: int, question: Callable[[Client], Any]) -> Any:
    """Return the answer of a server; None if it does not answer."""
    with (
        suppress(NoServerError),
        ServerSelector(directory, f"pid:{pid}").connect() as client,
    ):
        return question(client)
    return None


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_WITHIN_S)
    process.kill()  # which does nothing to one that has ended
