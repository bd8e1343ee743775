"""Layers of the code, and its surface for others."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.repo.laws import listening
from tests.repo.layers import LAYERS, Layer
from tests.repo.sources import Source, imported, modules, sources, within
from tests.repo.surface import SURFACE
from tests.support.needs import ROOT
from zmqtriton import addons

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
    "zmqtriton_standard.scaling.limits",
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
            "scaling",
            "sleeping",
        )
    ),
    "zmqtriton_extras.affinity",
    "zmqtriton_extras.canaries",
    "zmqtriton_extras.storage.object_stores",
)


ACTS = frozenset("asyncio logging os selectors socket subprocess threading time zmq".split())


#: The rooms of the features of the supervisor. The seam, `feature.py`, is for all; the list is read
#: where a core is built; a feature knows its own room.
FEATURES = "zmqtriton.supervisor.features"


FEATURE_LISTS = (f"{FEATURES}.table",)


CORE_BUILDERS = {"zmqtriton.supervisor.service"}


FORBIDDEN_NAMES = frozenset("common helper helpers manager managers misc util utils".split())


#: Modules with such names, and why.
FORBIDDEN_NAMES_IN_USE = {
    "zmqtriton_extras.pytriton.check.utils": "scripts written for PyTriton import it",
    "zmqtriton_extras.pytriton.client.utils": "scripts written for PyTriton import it",
    "zmqtriton_extras.pytriton.model_config.common": "scripts written for PyTriton import it",
    "zmqtriton_extras.pytriton.utils": "scripts written for PyTriton import it",
    "zmqtriton_extras.pytriton.utils.dataclasses": "scripts written for PyTriton import it",
    "zmqtriton_extras.pytriton.utils.distribution": "scripts written for PyTriton import it",
    "zmqtriton_extras.pytriton.utils.endpoint_utils": "scripts written for PyTriton import it",
    "zmqtriton_extras.pytriton.utils.logging": "scripts written for PyTriton import it",
    "zmqtriton_extras.pytriton.utils.workspace": "scripts written for PyTriton import it",
}


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
    "zmqtriton_standard.metrics.server": "HTTP, for scrapers",
    "zmqtriton_standard.tracing.exemplars": _OF_SERVER,
    "zmqtriton_extras.door.process.server": "ZMTP, for clients",
    "zmqtriton_extras.fleet.agent_check": "a line for load balancers; reads nothing",
    "zmqtriton_extras.fleet.proxies.following": "HTTP, for announcements of servers, with a token",
    "zmqtriton_extras.jobs.process.service": _OF_SERVER,
    "zmqtriton_extras.openai.token_metrics.process": _OF_SERVER,
    "zmqtriton_extras.otlp_metrics.pusher": _OF_SERVER,
}


#: Declarations and their readers know the kinds of add-ons.
SDK_USERS = ("zmqtriton.", "zmqtriton_standard.", "zmqtriton_extras.")


#: Rooms of the core whose kinds and helpers are for each add-on.
HOSTS = ("zmqtriton.diagnosis", "zmqtriton.figures")


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
        if top.startswith("zmqtriton"):
            is_kind = source.module.startswith(SDK_USERS) and within(name, ("zmqtriton.sdk",))
            is_kind |= source.module.startswith(SDK_USERS[1:]) and within(name, HOSTS)
            allowed = within(name, layer.ours) or is_kind
        else:
            allowed = top in STDLIB or top in layer.others or "*" in layer.others
        if not allowed:
            yield f"{source.path.relative_to(ROOT)}:{line} imports {name}; it {layer.reason}"


def every(check: Callable[[Source], Iterator[str]]) -> list[str]:
    return [fault for source in sources() for fault in check(source)]


def test_imports_go_downward_only() -> None:
    assert [] == every(import_faults)


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


def _feature_room(module: str) -> str:
    """The room of a feature of the supervisor that a module or a name in it is of, or ""."""
    _, _, rest = module.partition(f"{FEATURES}.")
    return rest.partition(".")[0]


def feature_faults(source: Source) -> Iterator[str]:
    room = _feature_room(source.module)
    may_list = within(source.module, FEATURE_LISTS)
    for line, name in imported(source):
        is_seam = within(name, (f"{FEATURES}.feature",))
        is_list = within(name, (f"{FEATURES}.table",))
        if not within(name, (FEATURES,)) or is_seam or (is_list and source.module in CORE_BUILDERS):
            continue
        if not may_list and (is_list or _feature_room(name) != room):
            yield f"{source.path.relative_to(ROOT)}:{line} imports {name}"


def test_the_core_and_other_features_know_no_feature() -> None:
    assert [] == every(feature_faults)


@pytest.mark.parametrize(
    ("module", "text", "is_allowed"),
    [
        ("core", "from zmqtriton.supervisor.features.feature import Feature", True),
        ("core", "from zmqtriton.supervisor.features.settings import LogSettings", False),
        ("core", "from zmqtriton.supervisor.features.table import FEATURES", False),
        ("core", "from zmqtriton.supervisor.features import settings", False),
        ("service", "from zmqtriton.supervisor.features.table import FEATURES", True),
        ("features.table", "from zmqtriton.supervisor.features.settings import LogSettings", True),
        (
            "features.quotas",
            "from zmqtriton.supervisor.features.settings import LogSettings",
            False,
        ),
        ("features.settings.x", "from zmqtriton.supervisor.features.settings import y", True),
    ],
)
def test_an_import_of_a_feature_is_noticed(module: str, text: str, is_allowed: bool) -> None:
    source = Source(f"zmqtriton.supervisor.{module}", ROOT / "x.py", ast.parse(text))

    assert is_allowed is not any(feature_faults(source))


@pytest.mark.parametrize(("library", "allowed", "reason"), ONLY_IN)
def test_a_library_stands_only_where_it_may(library: str, allowed: set[str], reason: str) -> None:
    def faults(source: Source) -> Iterator[str]:
        for line, name in imported(source):
            if within(name, (library,)) and source.module not in allowed:
                yield f"{source.path.relative_to(ROOT)}:{line} imports {library}; {reason}"

    assert [] == every(faults)


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
    def faults(source: Source) -> Iterator[str]:
        if source.module in FORBIDDEN_NAMES_IN_USE:
            return
        if FORBIDDEN_NAMES & set(source.module.split(".")):
            yield source.module

    assert [] == every(faults)


def test_a_module_says_what_it_is_for() -> None:
    def faults(source: Source) -> Iterator[str]:
        if source.tree.body and not ast.get_docstring(source.tree):
            yield f"{source.path.relative_to(ROOT)} has no docstring"

    assert [] == every(faults)


def functions(source: Source) -> Iterator[Function]:
    for node in source.nodes:
        if isinstance(node, Function):
            yield node


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


# ----------------------------------------------------------------------------- surface
# Add-ons import of the core what a list has, and packages on it have exactly the names in use.


#: One stands where scripts import it.
ADD_ONS = ("zmqtriton_standard", "zmqtriton_extras", "zmqtriton.embedded")


#: Everybody's, as the kinds of add-ons are.
FLOOR = ("zmqtriton_floor", "zmqtriton.sdk")


#: The modules of the core that have names of an add-on.
PUBLIC_NAMES = {"zmqtriton", "zmqtriton.ctl", "zmqtriton.ctl.main", "zmqtriton.sdk.process"}


#: The packages on the list whose names come from their modules.
FRONTS = sorted(
    module
    for module, path in modules().items()
    if module in SURFACE and "= lazy_names(" in path.read_text("utf-8")
)


def core_imports(source: Source) -> Iterator[tuple[int, str, str]]:
    """(line, module, name in it) of what an add-on imports of the core; of a module alone ""."""
    for line, full_name in imported(source):
        if full_name.startswith("zmqtriton") and not within(full_name, (*ADD_ONS, *FLOOR)):
            is_module = full_name in modules()
            module, _, name = (full_name, "", "") if is_module else full_name.rpartition(".")
            yield line, module, name


def of_add_ons() -> list[Source]:
    return [source for source in sources() if within(source.module, ADD_ONS)]


def faults(source: Source) -> list[str]:
    return [
        f"{source.path.relative_to(ROOT)}:{line} imports {module}, which surface.py does not list"
        for line, module, name in core_imports(source)
        if module not in SURFACE or name.startswith("_")
    ]


def test_add_ons_import_nothing_else_of_the_core() -> None:
    assert [] == [fault for source in of_add_ons() for fault in faults(source)]


def test_standard_imports_no_extra() -> None:
    """It asks for kinds: each extra may be left out of a wheel."""
    assert [] == [
        f"{source.path.relative_to(ROOT)}:{line} imports {name}"
        for source in sources()
        if within(source.module, ("zmqtriton_standard",))
        for line, name in imported(source)
        if within(name, ("zmqtriton_extras",))
    ]


def test_extras_import_of_each_other_what_they_say_that_they_need() -> None:
    needs = {name: {name, *each.declared.needs} for name, each in addons.own_add_ons().items()}

    assert [] == [
        f"{source.path.relative_to(ROOT)}:{line} imports {name}"
        for source in sources()
        if within(source.module, ("zmqtriton_extras",)) and "." in source.module
        for line, name in imported(source)
        if within(name, ("zmqtriton_extras",))
        and name.split(".")[1] not in needs[source.module.split(".")[1]]
    ]


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("from zmqtriton.config import Problem", True),
        ("from zmqtriton_floor import wire", True),
        ("from zmqtriton_standard.tools import doctor", True),
        ("from zmqtriton.config.errors import Problem", False),
        ("from zmqtriton.config import errors", False),
        ("import zmqtriton.broker.requests.lifecycle", False),
        ("def f():\n    from zmqtriton.supervisor.core import Core", False),
    ],
)
def test_an_import_of_something_else_is_noticed(text: str, is_allowed: bool) -> None:
    source = Source("zmqtriton_standard.tools.x", ROOT / "x.py", ast.parse(text))

    assert is_allowed is not bool(faults(source))


def test_the_core_knows_no_add_on() -> None:
    """But by the names that programs import."""
    of_core = [source for source in sources() if not within(source.module, ADD_ONS)]

    assert PUBLIC_NAMES == {
        source.module for source in of_core for _, name in imported(source) if within(name, ADD_ONS)
    }


#: Words for extras that mean nothing else, beside their options and parameters.
_WORDS = (
    "jobs? canary canaries affinity captures? openai vertex sagemaker webhooks? door fleet pytriton"
).split()
#: Places where they may stand: a file, what the line has, and why.
_NAMED = (
    ("stub/zmqtriton_floor/token_file.py", "--token-metrics", "what a limit of tokens needs"),
    ("broker_counts.py", '"affinity_', "figures as the status has them"),
    ("", "capture_output=", "an argument of the standard library"),
)


def _names_of_extras() -> re.Pattern[str]:
    """The words, and the options and parameters of several, as command lines and code have them."""
    lines = (ROOT / "extras/zmqtriton_extras/names.txt").read_text("utf-8").splitlines()
    names = {line.split()[1].removeprefix("--").replace("-", "[-_]") for line in lines}
    words = "|".join((*_WORDS, *sorted(name for name in names if "_" in name)))
    return re.compile(rf"(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE)


def _named_extras(path: str, text: str, pattern: re.Pattern[str]) -> list[str]:
    allowed = [part for place, part, _ in _NAMED if place in path]
    return [
        f"{path}: {line.strip()}"
        for line in text.splitlines()
        if pattern.search(line) and not any(part in line for part in allowed)
    ]


def test_the_core_asks_extras_by_kind_and_names_none() -> None:
    pattern = _names_of_extras()

    found = [
        line
        for root in ("zmqtriton", "stub", "frontends")
        for path in sorted((ROOT / root).rglob("*.py"))
        for line in _named_extras(f"{path.relative_to(ROOT)}", path.read_text("utf-8"), pattern)
    ]

    assert [] == found


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ('if options.value("allow_openai"):', True),
        ("SAGEMAKER = 1  # --sagemaker-port", True),
        ("agent_check_port: int", True),
        ("os.sched_getaffinity(0)", False),
        ("outdoor = fleeting", False),
    ],
)
def test_a_name_of_an_extra_is_noticed(line: str, is_found: bool) -> None:
    assert is_found is bool(_named_extras("zmqtriton/core.py", line, _names_of_extras()))


def test_each_line_of_the_list_is_used() -> None:
    used = {module for source in of_add_ons() for _, module, _ in core_imports(source)}

    assert [] == sorted(SURFACE.keys() - used), "take it off the list"


@pytest.mark.parametrize("package", FRONTS)
def test_a_package_has_the_names_that_are_used_and_types_see_the_same(package: str) -> None:
    used = {
        name for each in of_add_ons() for _, module, name in core_imports(each) if module == package
    }
    [source] = [source for source in sources() if source.module == package]
    typed = {
        name.removeprefix(f"{package}.") for _, name in imported(source) if within(name, (package,))
    }
    loaded = importlib.import_module(package)
    # what the package looks its names up in when they are asked for
    named = {
        f"{module}.{name}" for module, names in loaded._NAMES.items() for name in names.split()
    }

    assert named == typed
    assert used == {name.rpartition(".")[2] for name in named}
    assert [] == [name for name in used if not hasattr(loaded, name)]
