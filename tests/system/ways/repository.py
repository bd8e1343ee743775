"""The models that all ways lead to: kinds of one that says what it was asked."""

from __future__ import annotations

import re

from tests.support.server import Server

_BATCHES = "max_batch_size: 4\n"
_SEQUENCES = "sequence_batching { max_sequence_idle_microseconds: 60000000 }\n"
_DECOUPLED = "model_transaction_policy { decoupled: true }\n"
_CACHE = "response_cache { enable: true }\n"
_ENSEMBLE = """
platform: "ensemble"
input [ { name: "FLOATS" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] },
         { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling {
  step [
    { model_name: "mirror" model_version: 1
      input_map { key: "FLOATS" value: "FLOATS" }
      output_map { key: "FLOATS_BACK" value: "between" } },
    { model_name: "mirror" model_version: 1
      input_map { key: "FLOATS" value: "between" }
      output_map { key: "FLOATS_BACK" value: "OUT" }
      output_map { key: "SEEN" value: "SEEN" } }
  ]
}
"""
_BRAINS = """
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_BF16 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_BF16 dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


def prepare(server: Server) -> None:
    """Add the models to those that the server has: mirror, mirror_asker and add_sub."""
    write_edition(server, 1, version=2)
    kinds = {"batched": _BATCHES, "sequences": _SEQUENCES, "decoupled": _DECOUPLED}
    for kind, config in {**kinds, "cached": _CACHE}.items():
        path = server.add_model("mirror", f"mirror_{kind}") / "config.pbtxt"
        path.write_text(path.read_text() + config)
    server.add_model("mirror", "idle")
    for name, config in {"mirror_twice": _ENSEMBLE, "brains": _BRAINS}.items():
        server.write_model(name, config)


def write_edition(server: Server, edition: int, version: int) -> None:
    """Write the code of a version of `mirror`, which says the edition."""
    folder = server.repository / "mirror"
    text = (folder / "1" / "model.py").read_text()
    (folder / str(version)).mkdir(exist_ok=True)
    code = folder / str(version) / "model.py"
    code.write_text(re.sub(r"(?m)^EDITION = .*$", f"EDITION = {edition}", text))


#: The end of the outputs in the configuration, without the last one and with it.
LAST_OUTPUT = '{ name: "HALVES_BACK" data_type: TYPE_FP16 dims: [ -1 ] }'
LAST_OUTPUTS = LAST_OUTPUT + ',\n  { name: "FLAGS_BACK" data_type: TYPE_BOOL dims: [ 2 ] }'
#: All but `idle`.
LOADED = (
    "mirror",
    "mirror_asker",
    "mirror_batched",
    "mirror_sequences",
    "mirror_decoupled",
    "mirror_cached",
    "mirror_twice",
    "brains",
    "add_sub",
)
MODELS = ("mirror", "mirror_asker", "add_sub")
