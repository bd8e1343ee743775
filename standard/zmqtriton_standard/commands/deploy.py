"""`zmqtriton deploy [KIND [DIRECTORY]]`: writes the files of a deployment, and says what to do.

A kind is a folder of `deploy/`, which is installed as the package zmqtriton_deploy. This module
knows no kind: it prints the README.md of a kind up to the first section. So a new kind is a folder
with a README.md, which begins with a title, a table of the files with their places, and commands
that work in the directory with the files.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import sys
from pathlib import Path

from zmqtriton.sdk.process import table

_PACKAGE = "zmqtriton_deploy"
_README = "README.md"
#: Signs of Markdown that say nothing on a terminal: code, and the targets of links.
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
#: A link to what is not written with a kind: another kind, or the documentation.
_OUTER_LINK = re.compile(r"\[([^]]*)\]\(\.\./(?:\.\./([^)#]*)|(\w+)/)[^)]*\)")


class DeployError(Exception):
    """Raised if nothing is written; the text is for the user of the command."""


def run_deploy(words: list[str]) -> int:
    """Run the command and return the exit status."""
    arguments = _parser().parse_args(words)
    try:
        said = _write(arguments) if arguments.kind is not None else _overview()
    except (DeployError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(said)
    return 0


def _write(arguments: argparse.Namespace) -> str:
    """Write the files; return the text to print about them."""
    source = _find(arguments.kind)
    directory = Path(arguments.directory or f"zmqtriton-{arguments.kind}")
    written = write_files(source, directory, overwrites=arguments.force)
    names = "".join(f"  {directory / name}\n" for name in written)
    guide = terminal_text(opening((source / _README).read_text("utf-8")))
    return f"Written:\n{names}\n{guide}\nThis directory is {directory.absolute()}.\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton deploy",
        description="Write the files of a kind of deployment, and print their places and the "
        "next commands. Without a kind, list the kinds.",
    )
    parser.add_argument("kind", nargs="?", metavar="KIND", help="which files")
    parser.add_argument(
        "directory",
        nargs="?",
        metavar="DIRECTORY",
        help="where to write them (default: zmqtriton-KIND)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that differ")
    return parser


def kinds() -> dict[str, Path]:
    """Return the folders by their names. Raises DeployError if they are not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    roots = list(spec.submodule_search_locations or []) if spec is not None else []
    folders = {
        path.parent.name: path.parent for root in roots for path in Path(root).glob("*/" + _README)
    }
    if not folders:
        raise DeployError("the files are not installed; install zmqtriton from its wheel")
    return dict(sorted(folders.items()))


def _find(kind: str) -> Path:
    folders = kinds()
    if kind not in folders:
        raise DeployError(f"there is no kind '{kind}'; the kinds are {', '.join(folders)}")
    return folders[kind]


def _overview() -> str:
    folders = kinds()
    width = max(map(len, folders)) + 2
    titles = {
        name: (path / _README).read_text("utf-8").splitlines()[0] for name, path in folders.items()
    }
    lines = "".join(f"  {name:{width}}{title.lstrip('# ')}\n" for name, title in titles.items())
    return f"Usage: zmqtriton deploy KIND [DIRECTORY] [--force]\n\n{lines}"


def write_files(source: Path, directory: Path, *, overwrites: bool) -> list[Path]:
    """Copy all files, and return their names. Raises DeployError if it would overwrite others."""
    contents = {
        path.relative_to(source): _read(path)
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    if not overwrites:
        taken = [name for name in contents if not _may_write(contents[name], directory / name)]
        if taken:
            raise DeployError(
                f"{', '.join(str(directory / name) for name in taken)}: there already, and "
                "different; nothing was written. --force writes over it"
            )
    for name, content in contents.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        shutil.copymode(source / name, target)
    return list(contents)


def _read(path: Path) -> bytes:
    """Return the content of a file to write: instead of links, it names pages elsewhere."""
    content = path.read_bytes()
    return (
        _OUTER_LINK.sub(_name_page, content.decode()).encode() if path.name == _README else content
    )


def _name_page(link: re.Match[str]) -> str:
    text, page, kind = link.groups()
    where = f"share/doc/zmqtriton/{page}" if page else f"zmqtriton deploy {kind}"
    return f"{text} [`{where}`]"


def _may_write(content: bytes, target: Path) -> bool:
    if not target.exists():
        return not target.is_symlink()
    return target.is_file() and target.read_bytes() == content


def opening(readme: str) -> str:
    """Return the text before the second heading."""
    return re.split(r"^#+ ", readme, maxsplit=2, flags=re.MULTILINE)[1]


def terminal_text(markdown: str) -> str:
    """Return Markdown as plain text, with aligned tables, and without signs for code and links."""
    done: list[str] = []
    rows: list[list[str]] = []
    for line in [*markdown.strip().splitlines(), ""]:
        if line.startswith("|"):
            rows.append([_plain(cell.strip()) for cell in line.strip("|").split("|")])
            continue
        if rows:
            header, _, *body = rows
            done.append(table(header, body))
            rows = []
        done.append(line if line.startswith("    ") else _plain(line))
    return "\n".join(done)


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "")
