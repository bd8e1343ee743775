"""`zmqtriton example [NAME [DIRECTORY]]`: writes models to learn from, and commands to try.

Each example is a directory with a client, and a model repository with a script that makes its
weights, or a script that serves. It is in the folder `examples` of the add-on that it shows.
Examples with requirements are in `examples/` of the repository, which is installed as the package
zmqtriton_examples. This module knows nothing of what the models do.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from zmqtriton.sdk.process import addons

#: Package of the examples with requirements.
_GALLERY = "zmqtriton_examples"


def run_example(words: list[str]) -> int:
    """Run the command and return the exit status."""
    if "-h" in words or "--help" in words:
        sys.stdout.write(_help())
        return 0
    examples = folders()
    if not words or words[0] not in examples:
        said = f"there is no example '{words[0]}'; " if words else "which one? "
        sys.stderr.write(
            f"error: {said}usage: zmqtriton example NAME [DIRECTORY], NAME one of "
            f"{', '.join(examples)}\n"
        )
        return 1
    directory = Path(words[1] if len(words) > 1 else f"zmqtriton-{words[0]}")
    try:
        copy_missing(examples[words[0]], directory)
    except OSError as error:
        sys.stderr.write(f"error: cannot write the example: {error}\n")
        return 1
    sys.stdout.write(guide(directory))
    return 0


def _help() -> str:
    """Return the help; each example's first line is its title."""
    shown = "".join(
        f"  {name:19}{(folder / 'README.md').read_text().splitlines()[0].lstrip('# ')}\n"
        for name, folder in folders().items()
    )
    return (
        "Usage: zmqtriton example NAME [DIRECTORY]\n\n"
        "Writes models, a script that makes or serves them, and a client, by default to\n"
        f"zmqtriton-NAME, and prints the next commands. Keeps present files.\n\n{shown}"
    )


def folders() -> dict[str, Path]:
    """Return the directories of all examples by their names."""
    of_add_ons = [
        addons.directory_of(add_on.package) / "examples" for add_on in addons.own_add_ons().values()
    ]
    rooms = (*of_add_ons, addons.directory_of(_GALLERY))
    pages = (page for room in rooms for page in room.glob("*/README.md"))
    return dict(sorted((page.parent.name, page.parent) for page in pages))


def copy_missing(source: Path, directory: Path) -> None:
    """Copy files, and the fixtures of their tests, without overwriting anything. Raises OSError."""
    for path in (*source.rglob("*"), *source.parent.glob("conftest.py")):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        target = directory / path.relative_to(source if source in path.parents else source.parent)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def guide(directory: Path) -> str:
    begin = f"\nThe example is in {directory}; {directory}/README.md says what it shows."
    for file, command in (("job.py", "python"), ("bind.ipynb", "jupyter notebook")):
        if (directory / file).exists():
            return f"{begin} Run it by\n\n  {command} {directory}/{file}\n\n"
    if (directory / "requirements.txt").exists():
        parts = (directory / "README.md").read_text().split("\n\n")
        commands = next((part for part in parts if part.startswith("    ")), "")
        return f"{begin} Start with\n\n    cd {directory}\n{commands}\n\n"
    if (directory / "models").exists():
        described = directory / "example.json"
        example = json.loads(described.read_text()) if described.exists() else {}
        options = "".join(f" {option}" for option in example.get("options", ()))
        needs = example.get("client_needs", "'tritonclient[http]'")
        return f"""{begin} Its weights are made by

  python {directory}/make.py

then it is served, here or in another terminal, and asked:

  zmqtriton --model-repository={directory}/models{options}
  python {directory}/client.py          # needs: pip install {needs}

"""
    return f"""{begin} It is served, and asked from
another terminal:

  python {directory}/serve.py
  python {directory}/client.py

"""
