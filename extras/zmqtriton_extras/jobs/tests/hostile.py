"""Hostile documents as jobs, and as files, lines and requests of batches."""

from __future__ import annotations

import functools
import json
import random
import time
from collections.abc import Iterator

from tests.faults.attacks.hostile import (
    JSON,
    PATIENCE_S,
    VICTIM,
    Answer,
    Attack,
    House,
    drawn,
    member,
    send,
)
from tests.support.server import Server
from zmqtriton_extras.jobs.tests.batches.requests import CHAT, FORM_TYPE

_ENDS = ("completed", "failed", "cancelled", "succeeded", "done", "expired")
_FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\n'
    b'Content-Disposition: form-data; name="file"; filename="f"\r\n\r\n%b\r\n--b--'
)


def _end_of(server: Server, path: str) -> Answer:
    """Wait until a job or a batch has ended; return its last state."""
    end, state = time.monotonic() + PATIENCE_S, ""
    while time.monotonic() < end and state not in _ENDS:
        time.sleep(0.1)
        _, document = server.request_json(path)
        state = str(document.get("state") or document.get("status"))
    return Answer(200, state)


def keep(server: Server, path: str, body: bytes) -> Answer:
    """Send a request as a job, and wait for its end."""
    answer = send(server.http_port, path, body, {**JSON, "prefer": "respond-async"})
    if answer.status != 202:
        return answer
    return _end_of(server, f"/v2/jobs/{json.loads(answer.text)['id']}")


def batch(server: Server, lines: bytes) -> Answer:
    """Send a file and have it done as a batch; wait for its end."""
    answer = send(server.http_port, "/v1/files", _FORM % lines, FORM_TYPE)
    if answer.status != 200:
        return answer
    fields = {"input_file_id": json.loads(answer.text)["id"], "endpoint": CHAT}
    status, made = server.request_json("/v1/batches", {**fields, "completion_window": "24h"})
    return _end_of(server, f"/v1/batches/{made['id']}") if status == 200 else Answer(status)


def attacks(server: Server, chance: random.Random) -> Iterator[Attack]:
    paths = (f"/v2/models/{VICTIM}/infer", f"/v2/models/{VICTIM}/generate", "/box", CHAT)
    for path in paths:
        name, text = drawn(chance)
        body = b'{"model":"parrot","x":%b,"messages":%b}' % (text, text)
        keeping = functools.partial(keep, server, path, body)
        yield Attack(f"job {path}", name, len(body), keeping)
    for most_mib, count in ((60.0, 1), (1.0, 40)):
        name, text = drawn(chance, most_mib)
        line = b'{"custom_id":"%d","method":"POST","url":"%b","body":%b}'
        body = b'{"model":"parrot","messages":[{"role":"user","content":%b}]}' % member("a", text)
        lines = b"\n".join(line % (number, CHAT.encode(), body) for number in range(count))
        doing = functools.partial(batch, server, lines)
        yield Attack("batch", f"{count} × {name}", len(lines), doing)


HOUSE = House(attacks, lambda _: ("--jobs", "--allow-openai"))
