"""The rules on imports between packages, as a table."""

from __future__ import annotations

from typing import NamedTuple


class Layer(NamedTuple):
    """The imports allowed in one package; the longest matching package counts."""

    package: str
    ours: tuple[str, ...]
    others: tuple[str, ...]
    reason: str


_FLOOR = "zmqtriton_floor"
_BACKENDS = "zmqtriton_addons.backends"
_FLEET = "zmqtriton_addons.fleet"
_REQUESTS = tuple(f"zmqtriton_frontends.{room}" for room in ("gateway", "inference", "process"))
_STUB_LIBRARIES = ("zmq", "msgpack", "numpy")

LAYERS = (
    Layer(
        _FLOOR,
        (_FLOOR,),
        _STUB_LIBRARIES,
        "runs in the model's interpreter, which has nothing else",
    ),
    Layer(
        "zmqtriton_stub",
        (_FLOOR, "zmqtriton_stub"),
        _STUB_LIBRARIES,
        "runs in the model's interpreter, which has nothing else",
    ),
    Layer(
        "zmqtriton_stub.memory.gpu_cuda",
        (_FLOOR, "zmqtriton_stub.memory.device_span"),
        ("cupy", "numpy"),
        "is imported where a tensor on a GPU is met, and nowhere else",
    ),
    Layer(
        _BACKENDS,
        (_BACKENDS,),
        ("numpy", "triton_python_backend_utils"),
        "is a model like those of users, and knows the public model API alone",
    ),
    *(
        Layer(f"{_BACKENDS}.{name}", (_BACKENDS,), libraries, "runs one framework")
        for name, libraries in (
            ("fil", ("numpy", "treelite", "triton_python_backend_utils")),
            ("onnxruntime", ("numpy", "onnxruntime", "triton_python_backend_utils")),
            ("openvino", ("numpy", "openvino", "triton_python_backend_utils")),
            ("pytorch", ("numpy", "torch", "triton_python_backend_utils")),
            ("tensorflow", ("numpy", "tensorflow", "triton_python_backend_utils")),
            ("tensorrt", ("cupy", "numpy", "tensorrt", "triton_python_backend_utils")),
            ("vllm", ("numpy", "triton_python_backend_utils", "vllm")),
        )
    ),
    Layer("zmqtriton_protos", ("zmqtriton_protos",), ("google",), "is data, not behaviour"),
    Layer(
        "zmqtriton.embedded",
        (
            _FLOOR,
            "zmqtriton.control_client",
            "zmqtriton.embedded",
            "zmqtriton.runtime_places",
            "zmqtriton_frontends",
            "zmqtriton_stub",
        ),
        ("numpy",),
        "is a frontend in the user's own process, and runs instances there",
    ),
    Layer(
        "zmqtriton_addons.pytriton",
        (
            _FLOOR,
            "zmqtriton.config",
            "zmqtriton.control_client",
            "zmqtriton.embedded",
            "zmqtriton.options",
            "zmqtriton_addons.pytriton",
            "zmqtriton_stub.api",
        ),
        ("numpy",),
        "is a library in the user's own process",
    ),
    Layer(
        "zmqtriton_addons.tritonserver",
        (
            _FLOOR,
            "zmqtriton.embedded",
            "zmqtriton.options",
            "zmqtriton_addons.tritonserver",
            "zmqtriton_frontends.metrics_api.model_metrics",
            "zmqtriton_stub.api",
            "zmqtriton_stub.memory.gpu",
        ),
        ("numpy",),
        "is a library in the user's own process",
    ),
    Layer(
        "zmqtriton_addons.door",
        (_FLOOR, "zmqtriton_addons.door"),
        ("msgpack", "zmq"),
        "is what both ends of the door share",
    ),
    Layer(
        "zmqtriton_addons.door.client",
        (
            _FLOOR,
            "zmqtriton.embedded",
            "zmqtriton_addons.door.client",
            "zmqtriton_addons.door.headers",
            "zmqtriton_addons.door.sockets",
        ),
        ("numpy", "zmq"),
        "is a client and knows the server by its protocol alone",
    ),
    Layer(
        "zmqtriton_addons.door.process",
        (
            _FLOOR,
            "zmqtriton_addons.door.headers",
            "zmqtriton_addons.door.process",
            "zmqtriton_addons.door.sockets",
            "zmqtriton_frontends.entrance",
            *_REQUESTS,
            "zmqtriton_frontends.serving",
            "zmqtriton_frontends.tensors.references",
        ),
        ("zmq",),
        "is a frontend of a protocol of its own",
    ),
    Layer(
        "zmqtriton_addons.access_log",
        (
            _FLOOR,
            "zmqtriton_addons.access_log",
            "zmqtriton_addons.capture.frames",
            "zmqtriton_addons.capture.line",
            "zmqtriton_frontends.entrance",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.inference",
            "zmqtriton_frontends.serving",
        ),
        ("orjson",),
        "is a step of requests, and a file",
    ),
    Layer(
        "zmqtriton_addons.capture",
        (
            _FLOOR,
            "zmqtriton.ctl",
            "zmqtriton.embedded",
            "zmqtriton_addons.capture",
            "zmqtriton_frontends.entrance",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.inference",
            "zmqtriton_frontends.serving",
        ),
        ("click", "numpy", "orjson"),
        "is a step of requests, and a user of its records",
    ),
    Layer(
        "zmqtriton_addons.routes",
        (
            _FLOOR,
            "zmqtriton_addons.routes",
            "zmqtriton_frontends.entrance",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.http_api",
            "zmqtriton_frontends.inference",
        ),
        ("falcon",),
        "gives requests to models of routes",
    ),
    Layer(
        "zmqtriton_addons.routes.backend",
        ("zmqtriton_addons.routes.backend", "zmqtriton_addons.routes.names"),
        ("numpy", "triton_python_backend_utils"),
        "runs in the model's Python, without the server",
    ),
    Layer(
        "zmqtriton_addons.routes.process",
        (
            _FLOOR,
            "zmqtriton_addons.routes.names",
            "zmqtriton_addons.routes.process",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.serving",
        ),
        (),
        "has models loaded, and no clients",
    ),
    Layer(
        "zmqtriton_addons.jobs",
        (
            _FLOOR,
            "zmqtriton_addons.jobs",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.http_api",
        ),
        ("falcon",),
        "gives requests to the process of jobs, and keeps nothing",
    ),
    Layer(
        "zmqtriton_addons.jobs.ctl",
        (_FLOOR, "zmqtriton.ctl", "zmqtriton_addons.jobs.messages"),
        ("click",),
        "asks the process of jobs",
    ),
    Layer(
        "zmqtriton_addons.jobs.process",
        (
            _FLOOR,
            "zmqtriton.repository",
            "zmqtriton_addons.jobs.messages",
            "zmqtriton_addons.jobs.process",
            "zmqtriton_frontends.access",
            "zmqtriton_frontends.entrance",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.http_api",
            "zmqtriton_frontends.inference",
            "zmqtriton_frontends.serving",
        ),
        (),
        "is a frontend without clients, and executes by the routes of HTTP",
    ),
    Layer(
        "zmqtriton_addons.pytriton.client",
        (_FLOOR, "zmqtriton_addons.pytriton"),
        ("numpy",),
        "knows servers by their public protocols alone",
    ),
    Layer(
        "zmqtriton_addons.pytriton.client.wire",
        (
            _FLOOR,
            "zmqtriton_addons.pytriton.client.exceptions",
            "zmqtriton_addons.pytriton.client.wire",
            "zmqtriton_addons.pytriton.constants",
            "zmqtriton_protos",
        ),
        ("google", "grpc", "numpy"),
        "knows calls of a server, and no model client",
    ),
    Layer(
        "zmqtriton_frontends",
        (_FLOOR, "zmqtriton_frontends"),
        ("falcon", "gunicorn", "msgpack", "numpy", "orjson", "psutil", "uvloop", "zmq"),
        "knows the broker and the supervisor by the wire alone",
    ),
    Layer(
        "zmqtriton_frontends.process",
        (_FLOOR, "zmqtriton_frontends.process"),
        (),
        "is set up before anything is served",
    ),
    Layer(
        "zmqtriton_frontends.access",
        (_FLOOR, "zmqtriton_frontends.access"),
        (),
        "decides who may ask, and knows no protocol",
    ),
    Layer(
        "zmqtriton_frontends.inference",
        (_FLOOR, "zmqtriton_frontends.inference", "zmqtriton_frontends.process"),
        ("numpy", "orjson"),
        "decides about requests and sends none",
    ),
    Layer(
        "zmqtriton_frontends.tensors",
        (
            _FLOOR,
            "zmqtriton_frontends.inference",
            "zmqtriton_frontends.process",
            "zmqtriton_frontends.tensors",
        ),
        ("numpy",),
        "knows memory, and no protocol that tensors come by",
    ),
    Layer(
        "zmqtriton_frontends.gateway",
        (_FLOOR, *_REQUESTS, "zmqtriton_frontends.tensors"),
        ("zmq",),
        "knows the broker and the supervisor, and no protocol of clients",
    ),
    Layer(
        "zmqtriton_frontends.serving",
        (
            _FLOOR,
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.process",
            "zmqtriton_frontends.serving",
        ),
        ("uvloop",),
        "knows the life of a process, and nothing that it serves",
    ),
    Layer(
        "zmqtriton_frontends.entrance",
        (
            _FLOOR,
            "zmqtriton_frontends.access",
            "zmqtriton_frontends.entrance",
            "zmqtriton_frontends.tensors.comparing",
            *_REQUESTS,
        ),
        (),
        "knows what every request goes through, and no protocol of clients",
    ),
    *(
        Layer(name, (name,), (), "is a protocol and knows nobody who speaks it")
        for name in ("zmqtriton_frontends.http1", "zmqtriton_frontends.http2")
    ),
    Layer(
        "zmqtriton_frontends.grpc_api",
        (_FLOOR, "zmqtriton_frontends", "zmqtriton_protos"),
        ("google", "grpc", "numpy", "psutil", "uvloop", "zmq"),
        "only gRPC needs messages",
    ),
    Layer("zmqtriton.findings", (), (), "is what others say, and says nothing itself"),
    Layer(
        "zmqtriton.config",
        (_FLOOR, "zmqtriton_protos", "zmqtriton.addons", "zmqtriton.config", "zmqtriton.findings"),
        ("google",),
        "turns files into a checked config and knows no process",
    ),
    Layer(
        "zmqtriton_addons.tools.new_model",
        (
            _FLOOR,
            "zmqtriton.config",
            "zmqtriton_addons.capture.cases",
            "zmqtriton_addons.tools.new_model",
        ),
        (),
        "writes",
    ),
    Layer("zmqtriton.commit", (_FLOOR,), (), "says of which commit the code is"),
    Layer(
        "zmqtriton.options",
        (_FLOOR, "zmqtriton.addons", "zmqtriton.commit", "zmqtriton.options"),
        ("tomli", "tomllib"),
        "only reads texts, and how the commands of add-ons are used",
    ),
    Layer(
        "zmqtriton.addons",
        (_FLOOR, "zmqtriton.control_client.client", "zmqtriton.embedded.connection"),
        (),
        "is the seam, and knows no add-on",
    ),
    *(
        Layer(name, (f"zmqtriton_addons.{addon}",), (), "is a public name of an add-on alone")
        for name, addon in (
            ("zmqtriton.pytriton", "pytriton"),
            ("zmqtriton.door", "door.client"),
            ("zmqtriton.routes", "routes.backend.api"),
            ("zmqtriton.testing", "tools.testing"),
        )
    ),
    Layer("zmqtriton_addons", (), (), "is a name"),
    Layer("zmqtriton_addons.tools", (), (), "is a name"),
    Layer("zmqtriton_addons.web_apis", (), (), "is a name"),
    Layer(
        "zmqtriton_addons.web_apis.clouds",
        (
            _FLOOR,
            "zmqtriton_addons.web_apis.clouds",
            "zmqtriton_frontends.access.refusals",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.http_api",
            "zmqtriton_frontends.metrics_api",
            "zmqtriton_frontends.process",
        ),
        ("falcon",),
        "translates requests of platforms, and answers none itself",
    ),
    Layer(
        "zmqtriton_addons.web_apis.openai",
        (
            _FLOOR,
            "zmqtriton_addons.web_apis.openai",
            "zmqtriton_addons.web_apis.templates",
            "zmqtriton_frontends.access.bearer_tokens",
            "zmqtriton_frontends.entrance",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.http_api",
            "zmqtriton_frontends.inference",
        ),
        ("falcon", "numpy", "orjson"),
        "is a form of generate",
    ),
    Layer(
        "zmqtriton_addons.web_sockets",
        (
            _FLOOR,
            "zmqtriton_addons.web_sockets",
            "zmqtriton_frontends.entrance",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.http_api",
            "zmqtriton_frontends.inference",
            "zmqtriton_frontends.process",
            "zmqtriton_frontends.tensors.references",
        ),
        ("falcon", "orjson"),
        "is a form of infer_stream",
    ),
    Layer(
        "zmqtriton_addons.web_apis.templates",
        (_FLOOR, "zmqtriton_addons.web_apis.templates"),
        ("jinja2",),
        "its processes run the code of models, and have nothing else of the server",
    ),
    Layer(
        "zmqtriton_addons.tools.demo",
        ("zmqtriton.command_line", "zmqtriton.supervisor", "zmqtriton_addons.tools.examples"),
        (),
        "writes models and starts the server with them",
    ),
    Layer("zmqtriton_addons.tools.examples", (), (), "writes"),
    Layer(
        "zmqtriton_addons.tools.testing",
        (
            _FLOOR,
            "zmqtriton.broker.sequences.controls",
            "zmqtriton.config",
            "zmqtriton.embedded",
            "zmqtriton.repository",
            "zmqtriton.supervisor",
            "zmqtriton_addons.capture.cases",
            "zmqtriton_addons.tools.testing",
            "zmqtriton_stub",
        ),
        ("numpy",),
        "runs a model in the test's own process, and plays the broker",
    ),
    Layer(
        "zmqtriton_addons.tools.run",
        (
            _FLOOR,
            "zmqtriton.command_line",
            "zmqtriton.options",
            "zmqtriton.repository",
            "zmqtriton.config",
            "zmqtriton.supervisor",
            "zmqtriton_addons.tools.checking",
            "zmqtriton_addons.tools.new_model",
            "zmqtriton_addons.tools.run",
        ),
        (),
        "reads a file as a model and starts the server with it",
    ),
    Layer(
        "zmqtriton_addons.tools.explaining",
        (
            _FLOOR,
            "zmqtriton.config",
            "zmqtriton.control_client",
            "zmqtriton.ctl",
            "zmqtriton_addons.ctl.stacks",
            "zmqtriton.findings",
            "zmqtriton_addons.tools.checking",
            "zmqtriton_addons.tools.explaining",
        ),
        ("click",),
        "asks a running server why a model is not ready",
    ),
    Layer("zmqtriton_addons.table", (), (), "is read at each start, and imports nothing"),
    Layer(
        "zmqtriton.repository",
        (_FLOOR, "zmqtriton.config", "zmqtriton.repository"),
        (),
        "reads directories and knows no process",
    ),
    Layer(
        "zmqtriton.environments",
        (
            _FLOOR,
            "zmqtriton.config",
            "zmqtriton.environments",
            "zmqtriton.long_steps",
            "zmqtriton.repository",
        ),
        (),
        "is used with and without a running server",
    ),
    Layer(
        "zmqtriton_addons.tools.checking",
        (
            _FLOOR,
            "zmqtriton_addons.table",
            "zmqtriton_addons.tools.checking",
            "zmqtriton.command_line",
            "zmqtriton.config",
            "zmqtriton.environments",
            "zmqtriton.findings",
            "zmqtriton.options",
            "zmqtriton.repository",
            "zmqtriton.store_places",
            "zmqtriton.supervisor",
        ),
        ("tomli",),
        "judges by the rules of a load and starts no server",
    ),
    *(
        Layer(name, (_FLOOR,), (), "reads texts, and asks nobody")
        for name in ("zmqtriton.store_places", "zmqtriton.trace_destination")
    ),
    Layer(
        "zmqtriton_addons.storage",
        (
            _FLOOR,
            "zmqtriton.long_steps",
            "zmqtriton.store_places",
            "zmqtriton_addons.storage",
        ),
        (),
        "asks stores for whoever has models there, and knows no repository of directories",
    ),
    Layer(
        "zmqtriton_addons.storage.stores",
        (_FLOOR, "zmqtriton.store_places", "zmqtriton_addons.storage"),
        ("obstore",),
        "is the one place that knows the library, which is an extra",
    ),
    Layer(
        "zmqtriton_addons.tracing",
        (
            _FLOOR,
            "zmqtriton.trace_destination",
            "zmqtriton_addons.tracing",
        ),
        ("zmq",),
        "takes what others have seen, and knows none of them",
    ),
    Layer(
        "zmqtriton_addons.tracing.otlp",
        (_FLOOR, "zmqtriton_addons.tracing", "zmqtriton_protos"),
        (),
        "is the one place that knows messages",
    ),
    Layer(
        "zmqtriton.broker",
        (_FLOOR, "zmqtriton.broker", "zmqtriton.config"),
        (),
        "can be restarted and tested without the supervisor",
    ),
    Layer(
        "zmqtriton_addons.tools.simulation",
        (
            _FLOOR,
            "zmqtriton.broker",
            "zmqtriton.config",
            "zmqtriton.repository",
            "zmqtriton_addons.tools.simulation",
        ),
        (),
        "imagines everything around the broker's core",
    ),
    Layer(
        "zmqtriton.control_client",
        (_FLOOR, "zmqtriton.control_client", "zmqtriton.runtime_places"),
        (),
        "speaks to servers for our programs, and knows none of these",
    ),
    Layer(
        "zmqtriton.ctl",
        (
            "zmqtriton.addons",
            _FLOOR,
            "zmqtriton.commit",
            "zmqtriton.config",
            "zmqtriton.control_client",
            "zmqtriton.ctl",
            "zmqtriton.environments",
            "zmqtriton.findings",
            "zmqtriton.long_steps",
            "zmqtriton.runtime_places",
            "zmqtriton.standard_output",
            "zmqtriton.systemd",
            "zmqtriton.yaml_text",
        ),
        ("click", "rich"),
        "asks a running server and must not need one to be imported",
    ),
    Layer(
        "zmqtriton_addons.ctl",
        (
            _FLOOR,
            "zmqtriton.control_client",
            "zmqtriton.ctl",
            "zmqtriton.standard_output",
            "zmqtriton_addons.ctl",
        ),
        ("click", "numpy"),
        "asks a running server, and must not need one to be imported",
    ),
    Layer(
        "zmqtriton_addons.commands",
        (_FLOOR, "zmqtriton.console", "zmqtriton.options", "zmqtriton_addons.commands"),
        (),
        "writes files, and needs no server",
    ),
    Layer(
        "zmqtriton_addons.tools.benching",
        (
            _FLOOR,
            "zmqtriton_addons.tools.benching",
            "zmqtriton.control_client",
            "zmqtriton.ctl",
            "zmqtriton_addons.ctl.inferring",
            "zmqtriton_protos",
        ),
        ("click", "grpc"),
        "sends requests as clients on this machine do",
    ),
    Layer(
        "zmqtriton_addons.tools.doctor",
        (
            _FLOOR,
            "zmqtriton_addons.tools.doctor",
            "zmqtriton.command_line",
            "zmqtriton.control_client",
            "zmqtriton.ctl",
            "zmqtriton.environments",
            "zmqtriton.findings",
            "zmqtriton.options",
            "zmqtriton.runtime_places",
            "zmqtriton.supervisor",
            "zmqtriton_addons.tools.explaining.pressure",
        ),
        ("click",),
        "looks at the machine as a server that starts would, and needs none",
    ),
    Layer(
        "zmqtriton.ray",
        ("zmqtriton_addons.fleet",),
        (),
        "is a public name of an add-on, and nothing else",
    ),
    Layer(_FLEET, (_FLOOR, _FLEET), (), "knows servers from outside"),
    Layer(
        f"{_FLEET}.serve",
        (
            _FLOOR,
            _FLEET,
            "zmqtriton.command_line",
            "zmqtriton.control_client",
            "zmqtriton.runtime_places",
            "zmqtriton.yaml_text",
        ),
        ("aiohttp", "grpc", "pydantic", "ray", "starlette", "yaml"),
        "runs on Ray Serve, which brings these libraries",
    ),
    *(
        Layer(f"{_FLEET}.serve.{name}", (_FLOOR, f"{_FLEET}.serve"), libraries, "does no I/O")
        for name, libraries in (("configuration", ()), ("groups", ("pydantic",)), ("scaling", ()))
    ),
    Layer(
        f"{_FLEET}.servers",
        (_FLOOR, f"{_FLEET}.servers", "zmqtriton.control_client"),
        (),
        "finds servers and asks them, and keeps none",
    ),
    *(
        Layer(f"{_FLEET}.servers.{name}", (_FLOOR, f"{_FLEET}.servers"), (), "does no I/O")
        for name in ("membership", "nodes", "rollout")
    ),
    Layer(
        f"{_FLEET}.servers.sources",
        (_FLOOR, f"{_FLEET}.servers", f"{_FLEET}.serve.register"),
        (),
        "asks Ray, if there is one",
    ),
    Layer(f"{_FLEET}.servers.srv_records", (_FLOOR,), ("dns",), "is the one that asks DNS"),
    Layer(
        f"{_FLEET}.proxies",
        (_FLOOR, f"{_FLEET}.proxies", f"{_FLEET}.servers.nodes", "zmqtriton.yaml_text"),
        (),
        "decides, and does no I/O",
    ),
    *(
        Layer(
            f"{_FLEET}.{name}",
            (
                _FLOOR,
                _FLEET,
                "zmqtriton.control_client",
                "zmqtriton.ctl",
                "zmqtriton_addons.ctl.inferring",
            ),
            ("click",),
            "asks servers, and must not need one to be imported",
        )
        for name in ("ctl", "proxies.command")
    ),
    Layer(
        f"{_FLEET}.proxies.following",
        (_FLOOR, f"{_FLEET}.proxies", f"{_FLEET}.servers"),
        (),
        "looks at servers, and writes what the others decide",
    ),
    Layer(
        f"{_FLEET}.announcing",
        (
            _FLOOR,
            f"{_FLEET}.announcing",
            "zmqtriton_addons.tracing.posting",
            "zmqtriton_frontends.gateway",
            "zmqtriton_frontends.inference",
            "zmqtriton_frontends.process.request_log",
        ),
        (),
        "is a frontend that serves nobody and tells others what it hears",
    ),
    Layer(
        "zmqtriton.supervisor",
        (
            "zmqtriton.addons",
            _FLOOR,
            "zmqtriton.config",
            "zmqtriton.control_client",
            "zmqtriton.environments",
            "zmqtriton.long_steps",
            "zmqtriton.options",
            "zmqtriton.repository",
            "zmqtriton.runtime_places",
            "zmqtriton.store_places",
            "zmqtriton.supervisor",
            "zmqtriton.commit",
            "zmqtriton.console",
            "zmqtriton.systemd",
        ),
        ("psutil", "zmq"),
        "can be tested without the broker",
    ),
    Layer(
        "zmqtriton",
        (_FLOOR, "zmqtriton"),
        ("psutil", "zmq"),
        "ties the parts together; frontends and stubs are started, not imported",
    ),
)
