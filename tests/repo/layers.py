"""The layers of the core, as a table. Add-ons have one rule: test_add_ons.py."""

from __future__ import annotations

from typing import NamedTuple


class Layer(NamedTuple):
    """The imports allowed in one package; the longest matching package counts."""

    package: str
    ours: tuple[str, ...]
    others: tuple[str, ...]
    reason: str
    #: What is not allowed within `ours`.
    never: tuple[str, ...] = ()


_FLOOR, _FRONTENDS, _CONFIG = "zmqtriton_floor", "zmqtriton_frontends", "zmqtriton.config"
_LIBRARIES = ("zmq", "msgpack", "numpy")
_PROTOCOLS = ("zmqtriton_frontends.grpc_api", "zmqtriton_frontends.http_api")
_MODELS_PYTHON = "runs in the model's interpreter, which has nothing else"
_AT_START = "is read at each start and by each command"

LAYERS = (
    Layer(_FLOOR, (_FLOOR,), _LIBRARIES, _MODELS_PYTHON),
    Layer("zmqtriton_stub", (_FLOOR, "zmqtriton_stub"), _LIBRARIES, _MODELS_PYTHON),
    Layer(
        "zmqtriton_stub.memory.gpu_cuda",
        (_FLOOR, "zmqtriton_stub.memory.device_span"),
        ("cupy", "numpy"),
        "is imported where a tensor on a GPU is met, and nowhere else",
    ),
    Layer("zmqtriton_protos", ("zmqtriton_protos",), ("google",), "is data, not behaviour"),
    Layer(
        _FRONTENDS,
        (_FLOOR, _FRONTENDS),
        ("falcon", "gunicorn", "msgpack", "numpy", "orjson", "psutil", "uvloop", "zmq"),
        "knows the broker and the supervisor by the wire alone",
    ),
    *(
        Layer(f"{_FRONTENDS}.{room}", (_FLOOR, _FRONTENDS), libraries, reason, _PROTOCOLS)
        for room, libraries, reason in (
            ("access", (), "decides who may ask, and knows no protocol"),
            ("entrance", (), "is the way of all requests, of any protocol"),
            ("gateway", ("zmq",), "is the way to broker and supervisor, of any protocol"),
            ("inference", ("numpy", "orjson"), "decides about requests of any protocol"),
            ("process", (), "is set up before anything is served"),
            ("serving", ("uvloop",), "knows the life of a process, and nothing that it serves"),
            ("tensors", ("numpy",), "knows memory, and no protocol that tensors come by"),
        )
    ),
    *(
        Layer(name, (name,), (), "is a protocol and knows nobody who speaks it")
        for name in (f"{_FRONTENDS}.http1", f"{_FRONTENDS}.http2")
    ),
    Layer(
        f"{_FRONTENDS}.grpc_api",
        (_FLOOR, _FRONTENDS, "zmqtriton_protos"),
        ("google", "grpc", "numpy", "psutil", "uvloop", "zmq"),
        "only gRPC needs messages",
    ),
    Layer(
        "zmqtriton.broker",
        (_FLOOR, "zmqtriton.broker", _CONFIG),
        (),
        "can be restarted and tested without the supervisor",
    ),
    Layer(
        "zmqtriton.supervisor",
        (_FLOOR, "zmqtriton"),
        ("psutil", "zmq"),
        "can be tested without the broker",
        ("zmqtriton.broker", "zmqtriton.embedded", "zmqtriton.sdk"),
    ),
    Layer(
        _CONFIG,
        (_FLOOR, "zmqtriton_protos", "zmqtriton.addons", _CONFIG, "zmqtriton.findings"),
        ("google",),
        "turns files into a checked config and knows no process",
    ),
    Layer(
        "zmqtriton.embedded",
        (_FLOOR, _FRONTENDS, "zmqtriton", "zmqtriton_stub"),
        ("numpy",),
        "is a frontend in the user's own process, and runs instances there",
        ("zmqtriton.broker", "zmqtriton.supervisor", "zmqtriton.sdk"),
    ),
    Layer(
        "zmqtriton.options",
        (_FLOOR, "zmqtriton.addons", "zmqtriton.commit", "zmqtriton.options"),
        ("tomli", "tomllib"),
        _AT_START,
    ),
    Layer(
        "zmqtriton.control_client",
        (_FLOOR, "zmqtriton.control_client", "zmqtriton.runtime_places"),
        (),
        _AT_START,
    ),
    Layer("zmqtriton.addons", (_FLOOR, "zmqtriton.sdk"), (), _AT_START),
    Layer("zmqtriton.sdk", (_FLOOR, "zmqtriton.sdk"), (), _AT_START),
    *(
        Layer(
            f"zmqtriton.sdk.{page}",
            (_FLOOR, _FRONTENDS, "zmqtriton", "zmqtriton_stub"),
            (),
            "has names of all rooms for add-ons",
        )
        for page in "broker frontend lines models process supervisor wire".split()
    ),
    Layer("zmqtriton.ctl", ("zmqtriton_standard.ctl",), (), "is a public name of an add-on alone"),
    Layer(
        "zmqtriton",
        (_FLOOR, "zmqtriton"),
        ("psutil", "zmq"),
        "ties the parts together; frontends and stubs are started, not imported",
        ("zmqtriton.sdk",),
    ),
)
