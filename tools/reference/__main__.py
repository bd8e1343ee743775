"""Writes the generated pages of docs/reference, and the tables of one guide."""

from __future__ import annotations

from pathlib import Path

from tools.reference import (
    client_limits_page,
    command_lines_page,
    config_page,
    figures_page,
    http_page,
    kinds,
    pb_utils_page,
)

DIRECTORY = Path(__file__).resolve().parents[2] / "docs" / "reference"
#: By the name of its file.
PAGES = {
    "client-limits.md": client_limits_page.page,
    "command-lines.md": command_lines_page.page,
    "config.md": config_page.page,
    "figures.md": figures_page.page,
    "http.md": http_page.page,
    "pb-utils.md": pb_utils_page.page,
}


def text_of(name: str) -> str:
    """Return the text of a page by the name of its file."""
    return "\n".join(PAGES[name]()).rstrip() + "\n"


def main() -> None:
    for name in PAGES:
        (DIRECTORY / name).write_text(text_of(name), encoding="utf-8")
    kinds.GUIDE.write_text(kinds.written(), encoding="utf-8")


if __name__ == "__main__":
    main()
