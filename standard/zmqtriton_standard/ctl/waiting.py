"""`zmqtriton-ctl wait`: returns when a server, or a model of it, is ready."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from zmqtriton.sdk.models import asking
from zmqtriton.sdk.process import Client, NoServerError, ServerSelector
from zmqtriton.sdk.wire import Unavailable
from zmqtriton_standard.ctl.asking import exit_on_error
from zmqtriton_standard.ctl.output import print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL, seconds_option

_LOOK_EVERY_S = 0.2
#: Maximum number of model versions that the error names as not ready.
_MAX_NAMED = 10


@click.command()
@click.argument("model", type=MODEL, default="")
@click.argument("version", type=click.IntRange(1), required=False)
@seconds_option("--timeout", default=60.0, text="Seconds to wait.")
@with_format
@click.pass_context
def wait(
    context: click.Context, model: str, version: int | None, timeout: float, form: str
) -> None:
    """Wait until MODEL, or the server with all models, is ready.

    The exit status is 0 if it is ready, 1 if it is not ready in time, and 2 if there is no server
    in time.
    """
    began_s = time.monotonic()
    deadline_s = began_s + timeout
    with exit_on_error():
        while True:
            is_over = time.monotonic() >= deadline_s
            try:
                reason = _why_not_ready(context.obj, model, version or -1, in_full=is_over)
            except NoServerError:
                if is_over:
                    raise
                reason = "there is no server yet"
            if not reason:
                break
            if is_over:
                raise Unavailable(f"not ready after {timeout:g} s: {reason}")
            time.sleep(_LOOK_EVERY_S)
    document = {"model": model, "ready": True, "seconds": round(time.monotonic() - began_s, 3)}
    print_result(form, document, f"{model or 'the server'} is ready")


def _why_not_ready(selector: ServerSelector, model: str, version: int, *, in_full: bool) -> str:
    """Return why the server or model is not ready, explained if requested; "" if ready."""
    with selector.connect() as client:
        if model:
            if client.call(
                "ready", {"model": model, "version": version}, timeout_s=Client.QUICK_TIMEOUT_S
            ):
                return ""
            if not in_full:
                return model
            # only now: whoever waits for a model that gets ready needs none of it
            from zmqtriton.sdk.models import explain_version

            return f"{model}: {explain_version(client, model, max(0, version)).text}"
        index = client.call(
            "index",
            {"ready": False, "reasons": True},
            timeout_s=Client.QUICK_TIMEOUT_S,
        )
        unready = [_describe(entry) for entry in index if asking.needs_attention(entry)]
        more = len(unready) - _MAX_NAMED
        others = f" and {more} more; `zmqtriton-ctl explain` says why" if more > 0 else ""
        reasons = [f"{', '.join(unready[:_MAX_NAMED])}{others}"] if unready else []
        if in_full or not unready:
            reasons += _find_server_reasons(client)
        return "; ".join(reasons)


def _find_server_reasons(client: Client) -> Iterator[str]:
    """Yield why the server is not ready, apart from its models."""
    status = client.call("status", timeout_s=Client.QUICK_TIMEOUT_S)
    if not client.call("is_open", timeout_s=Client.QUICK_TIMEOUT_S):
        yield "its ports are not open yet"
        yield from (row["text"] for row in status.get("process_troubles", ()))
    elif any("model" not in drain for drain in status.get("drains", ())):
        yield "it drains"


def _describe(entry: dict[str, Any]) -> str:
    version = f" version {entry['version']}" if "version" in entry else ""
    # a model without a version to serve has no state in Triton's index
    return f"{entry['name']}{version} is {entry.get('state') or 'without a version to serve'}"
