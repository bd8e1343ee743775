"""The command `python -m zmqtriton.pytriton`, which checks an installation."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from zmqtriton_extras.pytriton.check.add_sub import add_sub_example, add_sub_example_thread
from zmqtriton_extras.pytriton.check.env_checks import env_checks

_PREFIX = "pytriton_workspace_"
_FORMAT = "%(asctime)s - %(levelname)s - %(name)s: %(message)s"
_WARNING = "The log has the names of your environment's variables; read it before you share it."

Step = Callable[[Path, logging.Logger], None]


def _environment(workspace: Path, logger: logging.Logger) -> None:
    env_checks(logger)


_STEPS: dict[str, Step] = {
    "env_checks": _environment,
    "example_add_sub": add_sub_example,
    "example_add_sub_script": add_sub_example_thread,
}
#: The steps of each command, and its help.
_COMMANDS = {
    "env": (["env_checks"], "log the environment"),
    "example-add-sub": (["example_add_sub"], "serve and ask a first model"),
    "example-add-sub-script": (["example_add_sub_script"], "the same, served by another process"),
    "examples": (["example_add_sub", "example_add_sub_script"], "both examples"),
    "check": ([*_STEPS], "all of it"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps of a command, by default of `check`; return 1 if one fails."""
    options = _parser().parse_args(arguments)
    names, _ = _COMMANDS[options.command or "check"]
    workspace: Path | None = options.workspace
    logging.basicConfig(level=logging.DEBUG, format=_FORMAT)
    logger = logging.getLogger("PyTriton-Check")
    if workspace is not None and workspace.exists():
        logger.error("Workspace path %s already exists", workspace)
        return 1
    logger.warning(_WARNING)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as temporary:
        directory = workspace or Path(temporary)
        results = [_run(name, directory) for name in names]
        base = workspace or Path.cwd() / directory.name
        logger.info("The logs are in %s", shutil.make_archive(str(base), "zip", directory))
    return 0 if all(results) else 1


def _run(name: str, directory: Path) -> bool:
    """Take a step; its log is written next to its workspace."""
    directory.mkdir(parents=True, exist_ok=True)
    root = logging.getLogger()
    handler = logging.FileHandler(directory / f"{name}_log.txt")
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
    logger = logging.getLogger(name)
    try:
        _STEPS[name](directory / name, logger)
    except Exception:
        logger.exception("%s has failed", name)
        return False
    finally:
        root.removeHandler(handler)
        handler.close()
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m pytriton", description="Check the environment and run examples."
    )
    _add_arguments(parser)
    commands = parser.add_subparsers(dest="command")
    for name, (_, text) in _COMMANDS.items():
        _add_arguments(commands.add_parser(name, help=text, description=text))
    return parser


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w", "--workspace", type=Path, help="directory to make for logs and servers"
    )
    parser.add_argument("--zip", action="store_true", help="put all into a ZIP, as it always does")


if __name__ == "__main__":
    sys.exit(main())
