"""Layers of the core, and what a module of any room may do."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.repo.laws import listening
from tests.repo.layers import LAYERS, Layer
from tests.repo.sources import ADD_ONS, Source, imported, sources, within
from tests.support.needs import ROOT

# ------------------------------------------------------------------------------ layers
# The rules on imports between packages, and on the size of files.
# The tables here and in layers.py are the rules.
# Reads the sources as syntax trees, so that an import inside a function counts like any other.


STDLIB = frozenset(sys.stdlib_module_names)


#: Functions that scripts call as others have defined them.
GIVEN_SIGNATURES = {("triton", "bind")}


Function = ast.FunctionDef | ast.AsyncFunctionDef


#: The only places of broker and supervisor that act, or look at the machine. All others decide.
HANDS = (
    "zmqtriton.broker.requests.answers",
    "zmqtriton.broker.sending",
    "zmqtriton.broker.service",
    "zmqtriton.supervisor.machine",
    "zmqtriton.supervisor.service",
    "zmqtriton_extras.canaries.requests",
    "zmqtriton_standard.memory.readings",
    "zmqtriton_extras.cores.machine",
    "zmqtriton_extras.mps.daemon",
    "zmqtriton_extras.scaling.limits",
)


#: The packages that decide, with the features of the supervisor that are add-ons.
BRAINS = (
    "zmqtriton.broker",
    "zmqtriton.supervisor",
    *(
        f"zmqtriton_standard.{room}"
        for room in (
            "draining",
            "memory",
            "on_demand",
            "operations",
            "reloading",
            "sleeping",
        )
    ),
    "zmqtriton_extras.affinity",
    "zmqtriton_extras.canaries",
    "zmqtriton_extras.cores",
    "zmqtriton_extras.mps",
    "zmqtriton_extras.scaling",
    "zmqtriton_extras.storage.object_stores",
)


ACTS = frozenset("asyncio logging os selectors socket subprocess threading time zmq".split())


FORBIDDEN_NAMES = frozenset("common helper helpers manager managers misc util utils".split())


#: Scripts written for PyTriton import modules with such names.
FORBIDDEN_NAMES_IN_USE = ("zmqtriton_extras.pytriton",)


#: Where a thing may stand, and nowhere else.
ONLY_IN = (
    (
        "msgpack",
        {"zmqtriton_floor.wire", "zmqtriton_extras.door.messages"},
        "the bytes on the wire are made in one file for each protocol",
    ),
    ("pickle", set[str](), "what is unpickled runs"),
    (
        "marshal",
        {"zmqtriton_stub.model_code"},
        "what is unmarshalled can crash the interpreter, but bytecode that the same user has kept",
    ),
    (
        "multiprocessing",
        {"zmqtriton.embedded.hosted_process"},
        "processes are the supervisor's, but those that a guest runs what it binds in",
    ),
)


SPAWNING = frozenset({"Popen", "fork", "forkpty", "posix_spawn", "create_subprocess_exec"})


SPAWNERS = {
    "zmqtriton_extras.pytriton.check.utils",  # the script of a user's process, beside it
    "zmqtriton.supervisor.machine.processes.process",
    "zmqtriton_stub.fork_server",
    "zmqtriton_extras.mps.daemon",  # it leaves its parent, and its guard outlives the server
    "zmqtriton_standard.ctl.replacing",  # a server of its own, which outlives the command
    "zmqtriton.embedded.server",  # a user's process, which starts a whole server
    "zmqtriton_extras.openai.templates.children",  # ends what a template does not end
    "zmqtriton.diagnosis.facts.silence",  # reads files that may never be read
    "zmqtriton_extras.bench.clients",  # clients that share no interpreter with the command
    "zmqtriton_extras.fleet.serve.owned_server",  # a replica of Ray Serve, which holds one
}


_OF_SERVER = "a process of the server, at a path in its own directory"
#: Modules that wait for connections and have no ToolListener, since no person's tool comes there.
LISTENERS = {
    "zmqtriton_floor.tool_listener": "is the class",
    "zmqtriton_floor.endpoints": "ZMTP",
    "zmqtriton_floor.zmtp": "ZMTP, whose greeting has a limit of its own",
    "zmqtriton_frontends.process.peer_user": "asks the kernel about a port that nobody knows",
    "zmqtriton_frontends.serving.listener": "HTTP and gRPC, for clients",
    "zmqtriton.supervisor.machine.control_socket": "SOCK_SEQPACKET, refuses others' users itself",
    "zmqtriton.sdk.lines.receiver": _OF_SERVER,
    "zmqtriton_frontends.serving.page_server": "HTTP, for scrapers",
    "zmqtriton_standard.tracing.exemplars": _OF_SERVER,
    "zmqtriton_extras.door.process.server": "ZMTP, for clients",
    "zmqtriton_extras.fleet.agent_check": "a line for load balancers; reads nothing",
    "zmqtriton_extras.fleet.proxies.following": "HTTP, for announcements of servers, with a token",
    "zmqtriton_extras.jobs.process.service": _OF_SERVER,
    "zmqtriton_extras.openai.token_metrics.process": _OF_SERVER,
    "zmqtriton_extras.otlp_metrics.pusher": _OF_SERVER,
}


FUNCTION_LINES = 60


ARGUMENT_BUILDER_LINES = 100


POSITIONAL_PARAMETERS = 6


def layer_of(module: str) -> Layer:
    fitting = [layer for layer in LAYERS if within(module, (layer.package,))]
    assert fitting, f"no rule for {module}: add its package to LAYERS"
    return max(fitting, key=lambda layer: len(layer.package))


def import_faults(source: Source) -> Iterator[str]:
    layer = layer_of(source.module)
    for line, name in imported(source):
        top = name.partition(".")[0]
        ours = within(name, layer.ours) and not within(name, layer.never)
        is_kind = source.module.startswith("zmqtriton.") and within(name, ("zmqtriton.sdk.addon",))
        if not (ours or is_kind or top in STDLIB or top in layer.others):
            yield f"{source.path.relative_to(ROOT)}:{line} imports {name}; it {layer.reason}"


def every(check: Callable[[Source], Iterator[str]]) -> list[str]:
    return [fault for source in sources() for fault in check(source)]


def test_imports_go_downward_only() -> None:
    assert [] == [
        fault
        for source in sources()
        if not within(source.module, ADD_ONS)
        for fault in import_faults(source)
    ]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("zmqtriton.broker.core", "from zmqtriton.supervisor import core"),
        ("zmqtriton.supervisor.core", "import zmqtriton.broker.core"),
        ("zmqtriton_frontends.gateway.gateway", "from zmqtriton import options"),
        ("zmqtriton_frontends.gateway.gateway", "import zmqtriton_stub.worker"),
        ("zmqtriton_frontends.http_api.app", "import zmqtriton_protos"),
        ("zmqtriton.main", "def f():\n    from zmqtriton_stub import worker"),
        ("zmqtriton_floor.wire", "import orjson"),
        ("zmqtriton_stub.worker", "import zmqtriton"),
        ("zmqtriton_protos", "import zmqtriton_floor"),
        ("zmqtriton.main", "from zmqtriton_standard import ctl"),
        ("zmqtriton_frontends.http_api.app", "import zmqtriton_extras.jobs"),
    ],
)
def test_an_import_upward_is_found(module: str, text: str) -> None:
    source = Source(module, ROOT / f"{module.split('.')[-1]}.py", ast.parse(text))

    assert 1 == len(list(import_faults(source)))


def test_relative_imports_are_resolved() -> None:
    text = "from . import core\nfrom ..supervisor import states"
    source = Source("zmqtriton.broker.service", ROOT / "service.py", ast.parse(text))

    assert ["zmqtriton.broker.core", "zmqtriton.supervisor.states"] == [
        name for _, name in imported(source)
    ]


def test_what_decides_does_not_act() -> None:
    """Broker and supervisor are tested without sockets and clocks, since their brains have none."""

    def faults(source: Source) -> Iterator[str]:
        is_brain = within(source.module, BRAINS) and not within(source.module, HANDS)
        for line, name in imported(source) if is_brain else ():
            if name.partition(".")[0] in ACTS:
                yield f"{source.path.relative_to(ROOT)}:{line} imports {name}"

    assert [] == every(faults)


@pytest.mark.parametrize(("library", "allowed", "reason"), ONLY_IN)
def test_a_library_stands_only_where_it_may(library: str, allowed: set[str], reason: str) -> None:
    assert [] == [
        f"{source.path.relative_to(ROOT)}:{line} imports {library}; {reason}"
        for source in sources()
        if source.module not in allowed
        for line, name in imported(source)
        if within(name, (library,))
    ]


def test_processes_are_started_in_one_module() -> None:
    """Each needs its lifeline, its session and its death signal, and is reaped."""

    def faults(source: Source) -> Iterator[str]:
        for node in source.nodes:
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name in SPAWNING and source.module not in SPAWNERS:
                line = getattr(node, "lineno", 0)
                yield f"{source.path.relative_to(ROOT)}:{line} uses {name}"

    assert [] == every(faults)


def test_sockets_for_a_person_s_tool_have_one_law() -> None:
    assert {*LISTENERS} == {source.module for source in sources() if listening(source.tree)}


def test_a_module_is_named_for_what_it_does() -> None:
    assert [] == [
        source.module
        for source in sources()
        if FORBIDDEN_NAMES & set(source.module.split("."))
        and not within(source.module, FORBIDDEN_NAMES_IN_USE)
    ]


def test_a_module_says_what_it_is_for() -> None:
    assert [] == [
        source.path
        for source in sources()
        if source.tree.body and not ast.get_docstring(source.tree)
    ]


def functions(source: Source) -> Iterator[Function]:
    return (node for node in source.nodes if isinstance(node, Function))


def test_functions_stay_small_enough_to_read() -> None:
    def faults(source: Source) -> Iterator[str]:
        for function in functions(source):
            # A list of arguments is long and has no branches.
            builds = "argument" in function.name or "parser" in function.name
            limit = ARGUMENT_BUILDER_LINES if builds else FUNCTION_LINES
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > limit:
                yield (
                    f"{source.path.relative_to(ROOT)}:{function.lineno} {function.name} has "
                    f"{lines} lines, {limit} are allowed"
                )

    assert [] == every(faults)


def test_functions_take_few_parameters_by_position() -> None:
    def faults(source: Source) -> Iterator[str]:
        for function in functions(source):
            arguments = function.args
            names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
            count = len([name for name in names if name not in ("self", "cls")])
            is_given = (source.stem, function.name) in GIVEN_SIGNATURES
            if count > POSITIONAL_PARAMETERS and not is_given:
                yield (
                    f"{source.path.relative_to(ROOT)}:{function.lineno} {function.name} "
                    f"takes {count} parameters by position"
                )

    assert [] == every(faults)


def test_an_error_that_is_kept_is_not_raised() -> None:
    """Each raise would add frames to its traceback, which would keep what those refer to."""

    def faults(source: Source) -> Iterator[str]:
        for node in source.nodes:
            raised = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(raised, ast.Name) and raised.id.isupper():
                yield f"{source.path.relative_to(ROOT)}:{raised.lineno} raises {raised.id}"

    assert [] == every(faults)
