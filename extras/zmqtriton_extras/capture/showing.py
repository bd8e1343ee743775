"""`zmqtriton-ctl capture show`: captured requests as a table, or one of them as curl."""

from __future__ import annotations

import shlex
from collections import deque
from pathlib import Path
from urllib.parse import quote

import click

from zmqtriton.sdk.wire import NotFound
from zmqtriton_extras.capture.records import Record, read, v2_request
from zmqtriton_standard.ctl.asking import exit_on_error
from zmqtriton_standard.ctl.output import print_document, with_format
from zmqtriton_standard.ctl.tables import print_table

_COLUMNS = {
    "ID": "id",
    "Time": "time",
    "Model": "model",
    "Version": "version",
    "Token": "token",
    "Responses": "responses",
    "ms": "duration_ms",
    "Status": "status",
}


@click.group()
def capture() -> None:
    """Look at requests that a server with --capture has recorded."""


@capture.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("record", default="", metavar="[ID]")
@click.option("--model", default="", metavar="MODEL", help="Requests to this model only.")
@click.option("--failed", is_flag=True, help="Failed requests only.")
@click.option(
    "--last", default=0, type=click.IntRange(0), metavar="N", help="The last N only. 0: all."
)
@with_format
@exit_on_error()
def show(directory: Path, record: str, *, model: str, failed: bool, last: int, form: str) -> None:
    """Print the requests of DIRECTORY, or the one with this ID as a command of curl."""
    if record:
        chosen = next((one for one in read(directory) if one.id == record), None)
        if chosen is None:
            raise NotFound(
                f"'{directory}' has no request '{record}'; `zmqtriton-ctl captures` lists them"
            )
        if form != "table":
            print_document(form, chosen.document)
            return
        click.echo(_as_curl(chosen))
        return
    rows = (
        _row(one)
        for one in read(directory)
        if model in ("", one.model) and (one.has_failed or not failed)
    )
    listed = list(deque(rows, maxlen=last or None))
    if form != "table":
        print_document(form, listed)
        return
    print_table(list(_COLUMNS), [[str(row[key]) for key in _COLUMNS.values()] for row in listed])


def _row(record: Record) -> dict[str, object]:
    document = record.document
    error = document["error"]
    status = "ok" if error is None else f"{error['code']}: {error['text'].partition(chr(10))[0]}"
    row = {key: document.get(key, "") for key in _COLUMNS.values()}
    return {**row, "responses": len(document["responses"]), "status": status}


def _as_curl(record: Record) -> str:
    """Return the request as a shell command. Raises InvalidArgument if it is incomplete."""
    head, parts = v2_request(record)
    verb = "infer_stream" if record.document["decoupled"] else "infer"
    path = f"/v2/models/{quote(record.model, safe='')}/versions/{record.document['version']}/{verb}"
    curl, body = f"curl -s localhost:8000{path}", shlex.quote(head.decode())
    if not parts:
        return f"{curl} -d {body}"
    tails = "".join(f" tail -c {size} {shlex.quote(str(file))};" for file, size in parts)
    header = f"Inference-Header-Content-Length: {len(head)}"
    return f"{{ printf %s {body};{tails} }} |\n    {curl} -H '{header}' --data-binary @-"
