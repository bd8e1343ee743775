"""`zmqtriton example [NAME [DIRECTORY]]`: writes a pipeline to learn from, and says what to type.

Each example is a directory with a model repository, a script that makes its weights, and a client.
Nothing here knows what the models do.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent


def run_example(words: list[str]) -> int:
    """The exit status."""
    if not words or words[0] not in names():
        said = f"there is no example '{words[0]}'; " if words else ""
        sys.stderr.write(
            f"error: {said}usage: zmqtriton example NAME [DIRECTORY], NAME one of "
            f"{', '.join(names())}\n"
        )
        return 1
    name = words[0]
    directory = Path(words[1]) if len(words) > 1 else Path(f"zmqtriton-{name}")
    try:
        copy_missing(EXAMPLES / name, directory)
    except OSError as error:
        sys.stderr.write(f"error: cannot write the example: {error}\n")
        return 1
    sys.stdout.write(guide(directory))
    return 0


def names() -> list[str]:
    return sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))


def copy_missing(source: Path, directory: Path) -> None:
    """Raises OSError. What is there already is the user's."""
    for path in sorted(source.rglob("*")):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        target = directory / path.relative_to(source)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def guide(directory: Path) -> str:
    return f"""
The example is in {directory}; {directory}/README.md says what it shows. Its weights are made by

  python {directory}/make.py

then it is served, here or in another terminal, and asked:

  zmqtriton --model-repository={directory}/models
  python {directory}/client.py          # needs: pip install 'tritonclient[http]'

"""
