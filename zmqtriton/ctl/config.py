"""`zmqtriton-ctl config`: the configuration that a server or a model really uses."""

from __future__ import annotations

from typing import Any

import click

from zmqtriton.ctl.asking import check_name, run_with_client
from zmqtriton.ctl.client import QUICK_TIMEOUT_S, Client
from zmqtriton.ctl.output import form_option, print_document
from zmqtriton.ctl.selecting import MODEL
from zmqtriton.ctl.tables import print_table
from zmqtriton_floor.errors import Unavailable


@click.command()
@click.argument("model", type=MODEL, default="")
@click.argument("version", type=click.IntRange(1), required=False)
@click.option("--all", "has_all", is_flag=True, help="Options with their default value, too.")
@form_option
@click.pass_context
def config(
    context: click.Context, model: str, version: int | None, has_all: bool, form: str
) -> None:
    """Show the options of the server that differ from their defaults; with MODEL, its config.

    A model's config is that of its highest version, or of VERSION, with everything that was
    completed, in the form of config.pbtxt.
    """
    if model:
        document = run_with_client(context, lambda client: _read_config(client, model, version))
        if form == "table":
            click.echo(_to_text(document), nl=False)
        else:
            print_document(form, document)
        return
    rows = run_with_client(
        context, lambda client: client.call("options", timeout_s=QUICK_TIMEOUT_S)
    )
    shown = [row for row in rows if has_all or not row["is_default"]]
    if form != "table":
        print_document(form, {row["option"]: row["value"] for row in shown})
        return
    cells = [[f"--{row['option']}", *map(_show, (row["value"], row["default"]))] for row in shown]
    print_table(("Option", "Value", "Default"), cells)


def _read_config(client: Client, model: str, version: int | None) -> dict[str, Any]:
    asked = {"model": model, "version": version or -1}
    found: dict[str, Any] = client.call("config", asked, timeout_s=QUICK_TIMEOUT_S)
    if not found:
        check_name(client, model)
        what = f"version {version} of model '{model}'" if version else f"model '{model}'"
        raise Unavailable(
            f"{what} does not serve, so it uses no config; `zmqtriton-ctl explain {model}` says why"
        )
    return found


def _to_text(document: dict[str, Any]) -> str:
    # only now: it reads protobuf definitions
    import json

    from zmqtriton.config.document import to_text
    from zmqtriton.config.pbtxt import parse_json

    return to_text(parse_json(json.dumps(document)))


def _show(value: Any) -> str:
    """Return a value as it is written on a command line; "-" for none."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value in ("", None) else str(value)
