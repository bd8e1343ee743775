"""Tells what to type next, once a model is served: requests that its configuration allows."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.options import Options
from zmqtriton_addons.tools.new_model.client_code import curl_text
from zmqtriton_addons.tools.new_model.draft import Draft, Kind
from zmqtriton_addons.tools.new_model.tensors import TensorSpec
from zmqtriton_floor.datatypes import BY_CONFIG_NAME

_EVERYWHERE = ("0.0.0.0", "::", "[::]")


def guide(name: str, options: Options, port: int, config: Mapping[str, Any]) -> str:
    """Return the text; without a configuration the model could not be loaded."""
    word = shlex.quote(name)
    if not config:
        again = "save it again" if options.reload else f"zmqtriton-ctl load {word}"
        return (
            f"\n{name} is not served yet: the lines above say why. When it is repaired: {again}\n\n"
        )
    host = "localhost" if options.http_address in _EVERYWHERE else options.http_address
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    url = f"{'https' if options.http_use_ssl else 'http'}://{host}:{port}"
    lines = "".join(f"  {line}\n" for line in _requests(name, config, url, port))
    after = (
        "It is loaded again whenever its files are saved."
        if options.reload
        else f"After a change `zmqtriton-ctl load --server {port} {word}` loads it again."
    )
    ask = f"In another terminal:\n\n{lines}\n" if lines else ""
    return f"\n{name} is served. {ask}A browser finds it on {url}. {after} Ctrl-C stops it.\n\n"


def _requests(name: str, config: Mapping[str, Any], url: str, port: int) -> Iterable[str]:
    draft = _draft(name, config)
    if line := curl_text(draft, url.removeprefix("http://")):
        yield line
    if draft.kind is Kind.PLAIN:
        yield f"zmqtriton-ctl infer --server {port} {shlex.quote(name)} --zeros"


def _draft(name: str, config: Mapping[str, Any]) -> Draft:
    """Return what the configuration of a model says of it."""
    kind = Kind.PLAIN
    if config.get("model_transaction_policy", {}).get("decoupled"):
        kind = Kind.DECOUPLED
    elif "sequence_batching" in config:
        kind = Kind.SEQUENCE
    inputs = config.get("input", [])
    needed = [entry for entry in inputs if not entry.get("optional")] or inputs
    return Draft(
        name,
        kind,
        tuple(map(_tensor, needed)),
        tuple(map(_tensor, config.get("output", []))),
        int(config.get("max_batch_size", 0)),
    )


def _tensor(entry: Mapping[str, Any]) -> TensorSpec:
    dims = tuple(int(dim) for dim in entry["dims"])
    return TensorSpec(entry["name"], BY_CONFIG_NAME[entry["data_type"]], dims)
