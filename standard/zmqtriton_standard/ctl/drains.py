"""`zmqtriton-ctl drain` and `undrain`: clients go elsewhere, then a step may follow."""

from __future__ import annotations

import time
from typing import Any

import click

from zmqtriton.sdk.process import Client, NoServerError
from zmqtriton.sdk.wire import InternalError
from zmqtriton_standard.ctl.asking import change_model, run_with_client
from zmqtriton_standard.ctl.output import print_note, print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL, seconds_option

#: Seconds between two questions about the progress of a drain.
_LOOK_EVERY_S = 0.3
#: States after which something follows.
_UNDER_WAY = frozenset({"draining", "ending"})


@click.command()
@click.argument("model", type=MODEL, default="")
@click.option("--instance", default="", metavar="I", help="One instance of MODEL, such as m_0_0.")
@click.option(
    "--then",
    default="nothing",
    type=click.Choice(["nothing", "unload", "restart", "stop"]),
    help="The next step. Default is nothing: it stays drained until `undrain`.",
)
@seconds_option("--within", text="Seconds after which open requests are ended.")
@seconds_option(
    "--quiet", default=1.0, text="Seconds without a new request before it counts as drained."
)
@with_format
@click.pass_context
def drain(
    context: click.Context,
    model: str,
    *,
    instance: str,
    then: str,
    within: float | None,
    quiet: float,
    form: str,
) -> None:
    """Drain MODEL, or the server, before it ends.

    It is not ready then, so load balancers go elsewhere.
    Requests that still arrive are answered. When no request is in progress, and none has come
    for a while, it is unloaded, restarted or stopped, or it stays drained until `undrain`.
    """
    wish = {"model": model, "instance": instance, "then": then, "quiet_s": quiet}

    def question(client: Client) -> Any:
        client.check_model(model)
        client.call(
            "drain",
            {**wish, "within_s": within, "wait": False},
            Client.QUICK_TIMEOUT_S,
        )
        try:
            return _follow(client, model, instance)
        except NoServerError:
            if then != "stop":
                raise
            return {"state": "stopping"}  # it has gone since the last look

    state = run_with_client(context, question, to_change=True)
    late = "; its time was over before everything had ended" if state.get("is_late") else ""
    _print_state(form, model, instance, state, late)


@click.command()
@click.argument("model", type=MODEL, default="")
@click.option("--instance", default="", metavar="I", help="One instance of MODEL.")
@with_format
@click.pass_context
def undrain(context: click.Context, model: str, instance: str, form: str) -> None:
    """End the drain of MODEL, an instance, or the server."""
    state = change_model(
        context,
        "undrain",
        model,
        timeout_s=Client.QUICK_TIMEOUT_S,
        instance=instance,
    )
    _print_state(form, model, instance, state)


def _print_state(
    form: str, model: str, instance: str, state: dict[str, Any], addition: str = ""
) -> None:
    text = f"{_name(model, instance)}: {state['state']}{addition}"
    print_result(form, {"model": model, "instance": instance, **state}, text)


def _name(model: str, instance: str) -> str:
    return instance or model or "the server"


def _follow(client: Client, model: str, instance: str) -> dict[str, Any]:
    """Show how far the drain is until it is over; return its result.

    Raises ZmqTritonError if the step after the drain has failed.
    """
    name, shown = _name(model, instance), ""
    while True:
        state: dict[str, Any] = client.call(
            "drain.state", {"model": model, "instance": instance}, Client.QUICK_TIMEOUT_S
        )
        if state["state"] not in _UNDER_WAY:
            break
        line = f"{name}: {state['state']}, {state['under_way']} under way"
        # at first it is not counted yet
        if line != shown and state["under_way"] is not None:
            print_note(line)
            shown = line
        time.sleep(_LOOK_EVERY_S)
    if "error" in state:
        raise InternalError(f"{name} was not brought back: {state['error']}")
    return state
