"""The documentation names what exists."""

from __future__ import annotations

import ast
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest

from tests.repo.test_wording import pages
from tests.support.needs import ROOT, file_of
from tools.commands import click_commands, help_of, server_commands
from zmqtriton.ctl.main import cli

CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
_ROOTS = (
    "",
    "zmqtriton",
    "stub/zmqtriton_floor",
    "stub",
    "frontends/zmqtriton_frontends",
    "standard",
    "extras",
    "standard/zmqtriton_standard",
    "extras/zmqtriton_extras",
    "standard/zmqtriton_standard/tools",
    "stub/zmqtriton_stub",
)
#: `module.Class.method` and `module.function`, as ARCHITECTURE.md writes them.
_DECISIONS = (ROOT / "docs" / "decisions.md").read_text("utf-8")
_NAMES = sorted(set(re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)`", ARCHITECTURE + _DECISIONS)))
#: Old and new addresses of pages and headings of the site.
_MOVED = [
    tuple(line.split()) for line in (ROOT / "tools/moved_pages.txt").read_text("utf-8").splitlines()
]
#: Pages of the site whose files are at the root.
_OTHER_PAGES = {
    "index.md",
    "architecture.md",
    "contributing.md",
    "changelog.md",
    "reporting.md",
    "deployment/index.md",
    "examples/index.md",
}


def _module(parts: list[str]) -> tuple[Path, list[str]] | None:
    """The file that the first parts name, and the parts within it."""
    for end in range(len(parts), 0, -1):
        for root in _ROOTS:
            path = ROOT.joinpath(root, *parts[:end])
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    return file, parts[end:]
    return None


def test_each_function_that_the_architecture_names_exists() -> None:
    for name in (n for n in _NAMES if not n.endswith((".py", ".md"))):
        module = _module(name.split("."))

        assert module is not None, f"no module for {name}"
        path, inside = module
        body: list[ast.stmt] = ast.parse(path.read_text("utf-8")).body
        for part in inside:
            definitions = [
                node
                for node in body
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name == part
            ]
            assert definitions, f"{path.name} has no {part} ({name})"
            body = definitions[0].body


def _slug(heading: str) -> str:
    """The anchor of a heading, as forges and the site make it."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _prose(page: Path) -> str:
    return re.sub("^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    return {_slug(heading) for heading in re.findall("^#+ (.*)$", _prose(page), re.MULTILINE)}


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
    links = [(p, link) for p in pages for link in re.findall(r"\]\(([^)\s]+)\)", _prose(p))]
    for page, target in links:
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in _anchors(there), f"{page.name} links to {target}"


def _pages_behind(page: Path) -> set[Path]:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", _prose(page))
    paths = {(page.parent / target).resolve() for target in targets if "://" not in target}
    return {path for path in paths if path.suffix == ".md" and path.exists()}


def test_every_page_is_at_most_two_clicks_from_the_readme() -> None:
    first = _pages_behind(ROOT / "README.md")
    second = {page for one in first for page in _pages_behind(one)}

    for route in ("docs/tutorial.md", "docs/guides/from-triton.md", "docs/wrong.md"):
        assert ROOT / route in first
    assert set() == {*ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")} - first - second


def test_the_site_has_every_page_in_its_menu() -> None:
    menu = re.findall(
        r"[:-] ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
    )

    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    kinds = [
        f"{site}/{path.parent.name}.md"
        for site, folder in (("deployment", "deploy"), ("examples", "examples"))
        for path in ROOT.glob(f"{folder}/*/README.md")
    ]
    sections = {f"{old}.md" for old, _ in _MOVED if old.startswith("deployment/")}
    assert set(menu) == {*pages, *kinds, *_OTHER_PAGES} - sections


def _file_of(page: str) -> Path:
    """The file of a page of the site."""
    if page.startswith("deployment/"):
        return ROOT / "deploy" / page.removeprefix("deployment/") / "README.md"
    return ROOT / "docs" / f"{page}.md"


@pytest.mark.parametrize(("old", "new"), _MOVED)
def test_an_old_address_leads_to_a_page_that_has_the_heading(old: str, new: str) -> None:
    page, _, anchor = new.partition("#")
    old_page, _, old_anchor = old.partition("#")

    assert _file_of(page).is_file()
    # the README of a kind of deployment can be a section of another's page
    files = ROOT.glob("deploy/*/README.md") if page.startswith("deployment/") else [_file_of(page)]
    assert not anchor or anchor in set().union(*map(_anchors, files))
    if not old_page.startswith("deployment/") and _file_of(old_page).is_file():
        assert old_anchor
        assert old_anchor not in _anchors(_file_of(old_page))


def test_no_entry_of_the_changelog_is_torn_or_stands_twice() -> None:
    """Changes of several branches are merged line by line."""
    unreleased = CHANGELOG.partition("## [Unreleased]\n")[2].partition("\n## ")[0]
    parts = [part.strip().split("\n") for part in re.split("^### ", unreleased, flags=re.M)]
    lines = [line for part in parts for line in part[1:] if line and not line.startswith("#### ")]
    entries = re.split("^- ", "\n".join(lines), flags=re.M)[1:]

    names = ["", "Highlights", "Changed", "Fixed", "Added"]
    assert [name for name in names if [name] in [part[:1] for part in parts]] == [
        part[0] for part in parts
    ]
    assert [] == [line for line in lines if not line.startswith(("- ", "  "))]
    assert [] == [entry for entry in entries if not entry.strip().endswith(".")]
    begins = [entry[:60] for entry in entries]
    assert [] == [begin for begin in begins if begins.count(begin) > 1]


def test_decisions_are_short_and_each_that_is_cited_exists() -> None:
    titles = re.findall(r"^### (D\d+)\. ", _DECISIONS, re.MULTILINE)
    lengths = {
        decision.partition(".")[0]: len(
            [line for line in decision.splitlines()[1:] if line and line[0] != "|"]
        )
        for decision in re.split(r"^### |^## .*$", _DECISIONS, flags=re.MULTILINE)[1:]
        if decision.startswith("D")
    }

    assert len(titles) == len(set(titles)) > 100
    assert {} == {title: length for title, length in lengths.items() if length > 8}
    assert set() == set(re.findall(r"\bD\d+\b", _DECISIONS)) - set(titles)


def test_the_architecture_fits_into_a_head() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 216


def test_the_tree_shows_every_room() -> None:
    packages = ("stub/zmqtriton_stub", "frontends/zmqtriton_frontends", "zmqtriton/broker")
    rooms = {
        path.parent.name
        for package in (*packages, "zmqtriton/supervisor")
        for path in (ROOT / package).glob("*/__init__.py")
        if "_backend_utils" not in path.parent.name
    }

    assert set() == {room for room in rooms if f"{room}/" not in ARCHITECTURE}


def test_headings_of_the_python_reference_leave_out_no_level() -> None:
    """An object's heading stands below that of its section, and is made one level deeper."""
    text = (ROOT / "docs/reference/python.md").read_text("utf-8")
    [made] = re.findall(r"^ +heading_level: (\d)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)

    levels = [len(signs) for signs in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert [1, 2] == sorted(set(levels))
    assert "3" == made


def test_the_python_reference_has_names_that_are_imported() -> None:
    text = (ROOT / "docs/reference/python.md").read_text("utf-8")
    names = re.findall(r"^::: (\S+)$", text, re.MULTILINE)

    assert names
    assert None not in map(pkgutil.resolve_name, names)
    assert [] == [name for name in names if not name.startswith("zmqtriton.")]


# ------------------------------------------------------------------------------ names in code
# Options, commands and paths that pages print: each exists.


#: Options of other programs that stand alone in a page, and of the add-on that a guide makes.
_OTHERS_OPTIONS = set(
    "--build-arg --cap-drop --enable-feature --extra-files --init --ipc --model-server-metrics-port"
    " --network --profile --read-only --read-only-tmpfs --requirements-file --serialized-file"
    " --shared-memory --shm-size --tmpfs --tokenizer --triton-launch-mode --greeting --lifeline"
    " --order-seed --durations-files --http- --grpc- --force-reinstall --no-deps".split()
)
_REFERENCE = (ROOT / "docs/reference/command-lines.md").read_text("utf-8")
_COMMANDS = {name for name, _, _ in server_commands()}
#: Commands of the add-on that docs/guides/extending.md makes.
_MADE_COMMANDS = {"greet", "greetings"}
_CODE = re.compile(r"`([^`\n]+)`|^    +(\S.*)$", re.MULTILINE)
_OUR_COMMAND = re.compile(r"(?:\$ )?(?:sudo )?(?:--|zmqtriton|tritonserver)")
_PATH = re.compile(
    r"(?<![\w/.$-])(?:deploy|tests|tools|docs|zmqtriton|extras|standard|stub|frontends|packages)"
    r"/[\w./-]*\w"
)


def _code() -> list[tuple[str, str]]:
    """Pages, and the lines and spans of code in them; old options stand in the changes alone."""
    return [
        (page.name, match[1] or match[2])
        for page in pages()
        if page.name != "CHANGELOG.md"
        for match in _CODE.finditer(page.read_text("utf-8"))
    ]


@cache
def _options_of(*words: str) -> set[str]:
    """The options of the command that begins with these words, or else of all commands."""
    of_ctl = {("zmqtriton-ctl", *name): command.params for name, command in click_commands(cli)}
    if params := of_ctl.get(words) or of_ctl.get(words[:2]):
        return {
            one for each in (*params, *cli.params) for one in (*each.opts, *each.secondary_opts)
        }
    is_own = words[:1] == ("zmqtriton",) and {*words[1:2]} & _COMMANDS - {
        "run",
        "demo",
        "check",
        "simulate",
    }
    name = (
        (words[1:3] if words[1] in ("token", "fleet") else words[1:2])
        if is_own
        else ("token", "new")
    )
    text = help_of(*name) + _REFERENCE * (not is_own)
    return {*re.findall(r"--[a-z][\w-]*", text), *_OTHERS_OPTIONS}


def test_each_option_in_a_page_exists() -> None:
    assert [] == [
        (page, part)
        for page, code in _code()
        if _OUR_COMMAND.match(code)
        for part in re.split(
            r" (?:\||&&|;|--|#)(?= |$)", re.sub(r"^\$ |\bsudo | --server \S+", "", code)
        )
        if not _options_of(*part.split()[:3]) >= {*re.findall(r"(?<![\w-])--[a-z][\w-]*", part)}
    ]


@pytest.mark.parametrize(
    ("program", "names"),
    [
        ("zmqtriton-ctl", {" ".join(words) for words, _ in click_commands(cli)}),
        ("zmqtriton", _COMMANDS | {f"token {one}" for one in ("new", "list", "remove")}),
        ("make", {*re.findall("^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)}),
    ],
)
def test_each_command_in_a_page_exists(program: str, names: set[str]) -> None:
    pattern = re.compile(
        rf"(?:\$ )?(?:sudo )?{program} (?:--server \S+ )?([a-z][a-z-]*)(?: ([a-z]+)\b)?"
    )
    typed = [(page, match) for page, code in _code() if (match := pattern.match(code))]

    assert len(typed) > 10
    assert [] == [
        (page, match[0])
        for page, match in typed
        if match[1] not in names | _MADE_COMMANDS
        or (
            f"{match[1]} {match[2]}" not in names
            and match[2]
            and match[1] in {one.split()[0] for one in names if " " in one}
        )
    ]


def test_each_path_of_the_repository_in_a_page_exists() -> None:
    named = {
        (page, path)
        for page, code in _code()
        for path in _PATH.findall(
            re.sub(r"(?<= -m )[\w.]+", lambda m: m[0].replace(".", "/"), code)
        )
    }

    assert len(named) > 100
    assert [] == [
        (page, path)
        for page, path in sorted(named)
        if "NAME" not in path
        and not any(one.exists() for one in (ROOT / path, ROOT / f"{path}.py", file_of(path)))
    ]


# ---------------------------------------------------------------------------- figures in pages

#: An option with its default: in the next cell of its row, or in brackets.
_STATED = re.compile(
    r"(?:^\| `(--[\w-]+)` \| |`(--[\w-]+)(?:=\w+)?` \((?:default )?)([\d,]+)(?: s| MiB)?[) ,]", re.M
)
#: Sentences of guides, the constant that each states, and what it is divided by.
_FIGURES = [
    (
        "overload",
        "| 30 s without progress |",
        "{:.0f} s",
        "frontends.process.client_progress.STALL_S",
        1,
    ),
    ("overload", "75 s over HTTP", "{:.0f} s", "frontends.http_api.server.connection.SILENT_S", 1),
    (
        "overload",
        "5 min over gRPC",
        "{:.0f} min",
        "frontends.grpc_api.transport.connection._FIRST_CALL_S",
        60,
    ),
    (
        "overload",
        "*Progress* is 30 KiB",
        "{} KiB",
        "frontends.process.client_progress.MIN_BYTES",
        1 << 10,
    ),
    (
        "overload",
        "holds at most 256 KiB",
        "{} KiB",
        "frontends.process.ledger.SMALL_BYTES",
        1 << 10,
    ),
    ("overload", "freed after 5 s", "{:.0f} s", "floor.arena.IDLE_S", 1),
    (
        "functions",
        "within 10 seconds",
        "{:.0f} seconds",
        "extras.functions.urls.WITHIN_S",
        1,
    ),
    ("openai", "| 4,096 |", "{:,}", "extras.openai.realtime._MAX_ITEMS", 1),
    (
        "openai",
        "| 16 MiB |",
        "{} MiB",
        "extras.openai.realtime._MAX_EVENT_BYTES",
        1 << 20,
    ),
    ("openai", "| 5 s,", "{:.0f} s", "extras.openai.templates.children.WITHIN_S", 1),
    ("jobs", "| 256 MiB,", "{} MiB", "extras.jobs.process.execution._MAX_BYTES", 1 << 20),
    (
        "websockets",
        "have 1,024 requests",
        "{:,}",
        "extras.web_sockets.stream._MAX_REQUESTS",
        1,
    ),
    ("../door", "| 1,024, or", "{:,}", "extras.door.process.peer._MAX_OPEN", 1),
]


def test_a_figure_of_a_guide_is_the_constant_of_the_code() -> None:
    assert [] == [
        (page, said)
        for page, said, form, name, unit in _FIGURES
        if said not in (ROOT / f"docs/guides/{page}.md").read_text("utf-8")
        or form.format(int(pkgutil.resolve_name(f"zmqtriton_{name}") / unit)) not in said
    ]


def test_a_default_of_an_option_in_a_page_is_that_of_the_reference() -> None:
    """In tables with a column of defaults, and behind the name of an option in brackets."""
    rows = re.findall(r"^\| (?:`|<code>)(--[\w-]+)[^|]*\| `(\d+)` \|", _REFERENCE, re.MULTILINE)
    known = [
        (page.name, int(said.replace(",", "")), int(dict(rows)[row + option]))
        for page in pages()
        for row, option, said in _STATED.findall(page.read_text("utf-8"))
        if row + option in dict(rows)
    ]

    assert len(known) > 15
    assert [] == [one for one in known if one[2] not in (one[1], one[1] << 20, one[1] << 30)]
