"""`python -m tools.add_on_names`: writes the table that names extras which a server lacks.

Each line has an extra and an option, or a parameter of config.pbtxt with which a model asks for it.
If an extra has options, these turn it on, so its parameters ask for nothing.
"""

from __future__ import annotations

from pathlib import Path

from zmqtriton import addons

PATH = Path(__file__).resolve().parent.parent / "extras" / "zmqtriton_extras" / addons.NAMES


def text() -> str:
    """Return the content of the file."""
    lines = []
    for name, add_on in addons.own_add_ons().items():
        declared = add_on.declared
        names = [f"--{option.name}" for option in addons.options()[name]] or [*declared.parameters]
        if add_on.package.startswith(PATH.parent.name):
            lines += [f"{name} {each}\n" for each in names]
    return "".join(sorted(lines))


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
