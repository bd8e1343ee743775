"""Measures what instances and batches bring, by the number of clients.

    python -m tests.bench.tuning [--only TEXT] [--save]

The model `waiting` takes 8 ms for each batch and 1 ms for each request in it, as a network on an
accelerator does; each setting is a copy of it in one server. Prints, and asserts nothing. With
--save the figures are kept in tests/bench/results, and the plot in docs/guides.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.bench import clients, plots, results
from tests.support.server import Server
from tests.support.tools import parse_options

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
_DELAY = "max_queue_delay_microseconds:"
#: The name of each setting: instances, the largest batch, and dynamic_batching.
PLOTTED = {
    "count 1": (1, 0, ""),
    "count 2": (2, 0, ""),
    "count 4": (4, 0, ""),
    "batches of 4": (1, 4, "dynamic_batching { }"),
    "batches of 16": (1, 16, "dynamic_batching { }"),
}
TABLED = {
    "delay 2 ms": (1, 16, f"dynamic_batching {{ {_DELAY} 2000 }}"),
    "delay 10 ms": (1, 16, f"dynamic_batching {{ {_DELAY} 10000 }}"),
    "preferred 8": (
        1,
        16,
        f"dynamic_batching {{ preferred_batch_size: [ 8 ] {_DELAY} 10000 }}",
    ),
    "2, of 16": (2, 16, "dynamic_batching { }"),
}


def _add(server: Server, name: str, count: int, size: int, batching: str) -> str:
    model = "".join(letter if letter.isalnum() else "_" for letter in name)
    path = server.add_model("waiting", model) / "config.pbtxt"
    text = path.read_text().replace("count: 1", f"count: {count}")
    path.write_text(text.replace("max_batch_size: 0", f"max_batch_size: {size}") + batching)
    return model


def _counts(server: Server, model: str) -> dict[str, float]:
    """Return the inferences and the executions so far."""
    stats = server.statistics(model)
    return {key: stats[f"{key}_count"] for key in ("inference", "execution")}


def measure(server: Server, name: str, model: str, size: int, seconds: float) -> dict[str, Any]:
    plan = clients.http_binary(server.http_port, model=model, shape=(1, 16) if size else (16,))
    points = []
    for count in CLIENTS:
        got = clients.measure(plan, count, seconds, lambda: _counts(server, model))
        batch = got.growth["inference"] / got.growth["execution"]
        print(
            f"{name:15} {count:3} {got.per_s:8.1f} {got.p50_ms:8.1f} {got.p99_ms:8.1f} "
            f"{batch:6.1f}",
            flush=True,
        )
        points.append(
            {
                **{"clients": count, "per_s": round(got.per_s, 1), "p50_ms": round(got.p50_ms, 2)},
                **{"p99_ms": round(got.p99_ms, 2), "batch": round(batch, 2)},
            }
        )
    return {"setting": name, "points": points}


def main() -> None:
    options = parse_options(
        __doc__,
        seconds=(3.0, "of each row"),
        only=("", "settings whose name holds this"),
        save=(False, "keep the figures and draw the plot"),
    )
    settings = {k: v for k, v in {**PLOTTED, **TABLED}.items() if options.only in k}
    print(f"{'setting':15} {'c':>3} {'req/s':>8} {'p50 ms':>8} {'p99 ms':>8} {'batch':>6}")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "s")
        models = {name: _add(server, name, *setting) for name, setting in settings.items()}
        with server:
            rows = [
                measure(server, name, models[name], settings[name][1], options.seconds)
                for name in settings
            ]
    if options.save:
        results.save("tuning", rows)
        plots.draw_tuning(
            [
                (row["setting"], [(p["clients"], p["per_s"], p["p50_ms"]) for p in row["points"]])
                for row in rows
                if row["setting"] in PLOTTED
            ]
        )


if __name__ == "__main__":
    main()
