"""The core and its add-ons: what each of them knows of the other."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.repo.sources import ADD_ONS, Source, imported, sources, within
from tests.support.needs import ROOT
from zmqtriton import addons

#: The pages of `zmqtriton.sdk`; it has declarations, lines and checks of files, too.
PAGES = "broker frontend models process supervisor wire".split()
#: The limits for the names of pages, each module as one; for all that add-ons reach, which has of
#: modules each name in use, such as `wire.Tensor`; for those of declarations, in the package.
MAX_ON_PAGES, MAX_NAMES, MAX_DECLARED = 200, 396, 15
#: Code in models' own Pythons: it has no `zmqtriton`, but the page of the floor.
IN_MODELS = (
    "zmqtriton_extras.functions.backend",
    "zmqtriton_extras.functions.streams",
    "zmqtriton_extras.inspection.debugger",
    "zmqtriton_extras.routes.backend",
)
SDK, MODELS_SDK = ("zmqtriton.sdk", "zmqtriton_protos"), ("zmqtriton_floor.sdk",)


def _allowed(module: str) -> tuple[str, ...]:
    """Return what an add-on may import of ours: the sdk, what its declaration needs, and itself."""
    shelf, name, *_ = (*module.split("."), "")
    package = f"{shelf}.{name}"
    declared_by = {each.package: each.declared for each in addons.own_add_ons().values()}
    needs = declared_by[package].needs if package in declared_by else ()
    packages = [each for each, declared in declared_by.items() if declared.name in needs]
    of_sdk = MODELS_SDK if within(module, IN_MODELS) else SDK
    return (
        *of_sdk,
        package,
        *(each for each in packages if shelf in (each.split(".")[0], ADD_ONS[1])),
    )


def _faults(source: Source) -> Iterator[str]:
    allowed = _allowed(source.module)
    for line, name in imported(source):
        if name.startswith("zmqtriton") and not within(name, allowed):
            yield f"{source.path.relative_to(ROOT)}:{line} imports {name}"


def test_add_ons_import_the_sdk_and_what_they_need() -> None:
    assert [] == [
        fault for source in sources() if within(source.module, ADD_ONS) for fault in _faults(source)
    ]


@pytest.mark.parametrize(
    ("module", "text", "is_allowed"),
    [
        ("zmqtriton_standard.ctl.x", "from zmqtriton.sdk.models import Problem", True),
        ("zmqtriton_standard.ctl.x", "from zmqtriton_standard.metrics import processes", True),
        ("zmqtriton_extras.jobs.x", "from zmqtriton_extras.openai import calls", True),
        ("zmqtriton_extras.functions.backend.x", "from zmqtriton_floor.sdk import shown", True),
        ("zmqtriton_standard.ctl.x", "from zmqtriton.config.errors import Problem", False),
        ("zmqtriton_standard.ctl.x", "from zmqtriton_floor import wire", False),
        ("zmqtriton_standard.ctl.x", "from zmqtriton_extras.jobs import channel", False),
        ("zmqtriton_extras.jobs.x", "import zmqtriton_extras.fleet", False),
        ("zmqtriton_extras.jobs.x", "def f():\n    from zmqtriton_stub import loop", False),
        ("zmqtriton_extras.functions.backend.x", "from zmqtriton.sdk.wire import shown", False),
    ],
)
def test_an_import_past_the_sdk_is_noticed(module: str, text: str, is_allowed: bool) -> None:
    source = Source(module, ROOT / "x.py", ast.parse(text))

    assert is_allowed is not any(_faults(source))


def _pages() -> dict[str, ModuleType]:
    return {page: importlib.import_module(f"zmqtriton.sdk.{page}") for page in PAGES}


def _homes(module: str) -> dict[tuple[str, str], str]:
    """Return the full name of each name of a page, as type checkers see them, where it is from."""
    [source] = [source for source in sources() if source.module == module]
    return {
        (module, alias.asname): f"{node.module}.{alias.name}"
        for node in source.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }


def _names(module: str) -> set[str]:
    return {name for _, name in _homes(module)}


def test_the_sdk_is_small_and_all_of_it_is_there() -> None:
    names = {page: _names(page.__name__) for page in _pages().values()}

    assert [] == [
        f"{page}.{name}" for page in names for name in names[page] if not hasattr(page, name)
    ]
    assert len(_of_the_package()) <= MAX_DECLARED
    assert sum(map(len, names.values())) <= MAX_ON_PAGES
    assert _names("zmqtriton_floor.sdk") <= set().union(*names.values())


def _reached(source: Source, homes: dict[tuple[str, str], str], modules: set[str]) -> Iterator[str]:
    """Yield what a source uses of modules that pages have as a whole."""
    local = {
        alias.asname or alias.name: homes[node.module or "", alias.name]
        for node in source.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if homes.get((node.module or "", alias.name)) in modules
    }
    for node in source.nodes if local else ():
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in local:
            yield f"{local[ast.unparse(node.value)]}.{node.attr}"


def test_add_ons_reach_few_names() -> None:
    homes: dict[tuple[str, str], str] = {}
    for page in (*_pages().values(), importlib.import_module(*MODELS_SDK)):
        homes |= _homes(page.__name__)
    modules = {*homes.values()} & {each.module for each in sources()}

    reached = {*homes.values()} - modules
    for source in sources():
        if within(source.module, ADD_ONS):
            reached |= {*_reached(source, homes, modules)}

    assert len(reached) <= MAX_NAMES


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (
            "from zmqtriton.sdk.wire import wire as w\nw.Tensor, w.Tensor.name",
            ["p.wire.Tensor"] * 2,
        ),
        ("from zmqtriton.sdk.wire import Tensor\nTensor.name", []),
    ],
)
def test_a_name_reached_through_a_module_is_counted(line: str, names: list[str]) -> None:
    homes = {("zmqtriton.sdk.wire", name): f"p.{name}" for name in ("wire", "Tensor")}
    source = Source("zmqtriton_extras.jobs.x", ROOT / "x.py", ast.parse(line))

    assert names == [*_reached(source, homes, {"p.wire"})]


def _of_the_package() -> list[str]:
    """Return the names beside the pages: declarations, and what is defined in the sdk itself."""
    return [
        node.name
        for source in sources()
        if within(source.module, ("zmqtriton.sdk",))
        for node in source.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]


def test_each_name_of_the_sdk_is_used() -> None:
    used = {
        name
        for source in sources()
        if within(source.module, ADD_ONS)
        for _, name in imported(source)
    }
    pages = {f"zmqtriton.sdk.{page}" for page in PAGES}

    unused = {f"{page}.{name}" for page in pages for name in _names(page)} - used
    assert FOR_OTHERS == unused


#: Names for add-ons of other people, in docs/guides/extending.md.
FOR_OTHERS = {
    "zmqtriton.sdk.process.connect",
    "zmqtriton.sdk.wire.described",
}
#: The modules of the core that have names of an add-on.
PUBLIC_NAMES = {"zmqtriton.ctl", "zmqtriton.ctl.main"}


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

    imports = [
        line
        for root in ("zmqtriton", "stub", "frontends")
        for path in sorted((ROOT / root).rglob("*.py"))
        for line in _named_extras(f"{path.relative_to(ROOT)}", path.read_text("utf-8"), pattern)
    ]

    assert [] == imports


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
