"""MkDocs hook: pages outside of docs/, links to and from them, version, and public names."""

from __future__ import annotations

import json
import posixpath
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, DictLoader, Environment
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
#: File of the repository to page of the site.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "deploy/README.md": "deployment/index.md",
    "LICENSE": "LICENSE.txt",
    **{
        path.relative_to(ROOT).as_posix(): f"deployment/{path.parent.name}.md"
        for path in ROOT.glob("deploy/*/README.md")
    },
    "examples/README.md": "examples/index.md",
    **{
        path.relative_to(ROOT).as_posix(): f"examples/{path.parent.name}.md"
        for path in ROOT.glob("examples/*/README.md")
    },
}
#: Pictures of the examples, which have the same place in the site.
PICTURES = {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("examples/*/page.webp")}
#: File that is the last section of another file's page: both kinds of deployment need their own.
SECTIONS = {"deploy/grafana/README.md": "deploy/prometheus/README.md"}
for _section, _whole in SECTIONS.items():
    PAGES[_section] = PAGES[_whole]
#: Lines with an old and a new address, each of a page or of a heading: page#anchor.
MOVED = ROOT / "tools" / "moved_pages.txt"
#: A script that leads from the old address of a heading, or of the page (""), to the new one.
_LEAD_ON = """<script>{{
  const moved = {}, page = moved[""];
  const same = page && (page.includes("#") ? page : page + location.hash);
  const there = moved[location.hash] || same;
  if (there) location.replace(there);
}}</script>
"""
#: A page that is no more; without scripts it leads to the page that has taken its place.
_OLD_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<meta name="robots" content="noindex">
<link rel="canonical" href="{0}">
{1}<noscript><meta http-equiv="refresh" content="0; url={0}"></noscript>
</head>
<body><p>This page has moved: <a href="{0}">{0}</a></p></body>
</html>
"""
#: The name of an option or a field is broken nowhere but at its hyphens.
_STYLE = (
    ".md-typeset td code { word-break: normal; overflow-wrap: normal }\n"
    # a colour alone does not tell a link within a text
    ".md-typeset :is(p, li, td) a { text-decoration: underline }\n"
    # colours of the theme that differ too little for small letters
    "[data-md-color-scheme] { --grey: #595959 }\n"
    "[data-md-color-scheme=slate] { --grey: #b0b4c8; --md-code-bg-color: #1d1f27 }\n"
    ".md-copyright { color: #a0a0a0 }\n"
    ".md-tabs__link { opacity: 1 }\n"
    ".md-tabs__item--active { font-weight: bold }\n"
    ".md-banner a { color: inherit; text-decoration: underline }\n"
    # long lines of outputs are read whole
    ".md-typeset pre > code { white-space: pre-wrap }\n"
    "[data-md-color-scheme] { --md-code-hl-comment-color: var(--grey);"
    " --md-code-hl-operator-color: var(--grey); --md-code-hl-variable-color: var(--grey);"
    " --md-code-hl-generic-color: var(--grey); --md-code-hl-punctuation-color: var(--grey) }\n"
)
#: Keys scroll what a mouse does, and places for buttons have names of their own.
_SCRIPT = """
document$.subscribe(() => setTimeout(() => {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code"))
    part.tabIndex = 0;
  document.querySelector(".md-search").ariaLabel = "Search";
  const places = document.querySelectorAll(".md-code__nav");
  places.forEach((place, n) => { place.ariaLabel = `Code ${n + 1}`; });
  for (const button of document.querySelectorAll("[data-clipboard-target]")) {
    const lines = document.querySelector(button.dataset.clipboardTarget).innerText.split("\\n");
    if (lines[0].startsWith("$ "))
      button.dataset.clipboardText = typed(lines).join("\\n");
  }
}));
function typed(lines) {
  // commands without their prompts and outputs; a command goes on behind a backslash or in quotes
  const kept = [];
  let open = false;
  for (const line of lines) {
    const isCommand = line.startsWith("$ ");
    if (!open && !isCommand) continue;
    kept.push(isCommand && !open ? line.slice(2) : line);
    const quotes = kept.join("\\n").split("'").length - 1;
    open = line.endsWith("\\\\") || quotes % 2 === 1;
  }
  return kept;
}
"""
#: The search leaves these out: they name everything, and answer no question of a user.
UNSEARCHED = {"conformance.md", "decisions.md", "kept.md", "protocol.md", "recorded-differences.md"}
#: Pages that come first among equal finds of the search, or last.
BOOSTS = {"tutorial.md": 2, "guides/functions.md": 2, "wrong.md": 2, "changelog.md": 0.1}
#: Words that people type into the search, which the page says in other words.
WORDS = {
    "deployment/systemd/": ("systemctl", "service", "systemd TLS tokens"),
    "guides/access/": ("login", "password", "HTTPS", "mTLS", "OAuth", "JWT"),
    "guides/debugging/": ("profile", "profiler", "py-spy", "hang", "breakpoint"),
    "guides/environments/": ("conda", "virtualenv", "Docker image per model"),
    "guides/from-triton/": ("migrate from Triton", "migration", "model repository"),
    "guides/functions/": ("Gradio", "multipart", "upload", "pydantic"),
    "guides/image-classifier/": (
        "image classification",
        "vision",
        "YOLO",
        "object detection",
        "computer vision",
    ),
    "guides/language-models/": ("LLM", "Hugging Face", "huggingface", "chatbot"),
    "guides/load-balancing/": ("Traefik", "several servers"),
    "guides/many-streams/": ("continuous batching", "diffusion", "text to speech", "TTS"),
    "guides/more-models/": ("cold start", "scale to zero"),
    "guides/openai/": (
        "ChatGPT",
        "OpenAI client",
        "stream tokens",
        "Whisper",
        "transcription",
        "JSON mode",
        "tool calling",
    ),
    "guides/performance/": ("slow", "throughput", "latency", "bottleneck", "flame graph"),
    "guides/reverse-proxy/": (
        "reverse proxy",
        "certbot",
        "letsencrypt",
        "certificate",
        "502",
        "504",
        "HTTPS",
    ),
    "guides/updates/": ("hot reload", "deploy a model", "zero downtime"),
    "install/": ("pip install", "Docker", "Debian package", "wheel"),
    "operations/": ("healthcheck", "readiness probe", "graceful shutdown", "environment variables"),
    "reference/config/": ("config.pbtxt",),
    "wrong/": ("troubleshooting", "debug", "OOM", "memory leak", "error"),
}
#: A quotation that begins with its kind, which forges show as it is, and the site as a box.
_BOX = re.compile(r"^> \*\*(Note|Warning):\*\* (.*(?:\n>.*)*)", re.MULTILINE)
#: Alternatives, each below its name in bold, which forges show one after the other, and the site
#: as tabs.
_TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->\n", re.MULTILINE | re.DOTALL)
_TAB = re.compile(r"^\*\*([^*\n]+)\*\*\n(.*?)(?=^\*\*[^*\n]+\*\*\n|\Z)", re.MULTILINE | re.DOTALL)
#: An indented block that begins with a prompt.
_SESSION = re.compile(r"(?<=\n\n)(    \$ .*\n(?:    .*\n|\n(?=    |\n))*)", re.MULTILINE)
#: Pages whose headings of the third level are found by the search, and too many for a menu.
LONG = {"reference/errors.md"}
#: The note of a page that a tool writes, and nobody edits.
_WRITTEN = re.compile("(Written|Generated) by `python -m ")
#: A template of the theme with a bar on top of each page.
_TEMPLATE = '{{% extends "base.html" %}}{{% block announce %}}{}{{% endblock %}}'
_LINK = re.compile(r"(?<=\]\()([^)#:]+)(#[^)]*)?(?=\))")


def on_startup(command: str, dirty: bool) -> None:
    """Write the files that lead from names under `zmqtriton` to modules of add-ons."""
    write = runpy.run_path(str(ROOT / "setup.py"))["write_public"]
    write(ROOT / "build/types/zmqtriton-stubs")


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "tables.css", content=_STYLE))
    files.append(File.generated(config, "keys.js", content=_SCRIPT))
    for place, path in PICTURES.items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    for source, page in PAGES.items():
        if source not in SECTIONS:
            files.append(File.generated(config, page, content=page_text(source)))
    return files


def page_text(source: str) -> str:
    """Return a file of the repository, together with the files that are sections of its page."""
    sections = [page_text(section) for section, whole in SECTIONS.items() if whole == source]
    text = (ROOT / source).read_text("utf-8")
    return "\n".join([text, *(re.sub("^#", "##", one, flags=re.M) for one in sections)])


def first_anchor(source: str) -> str:
    """Return the anchor of a file's title, where the file is a section."""
    title = (ROOT / source).read_text("utf-8").partition("\n")[0].removeprefix("# ")
    return "#" + re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


def moved() -> dict[str, dict[str, str]]:
    """Return by old page the new addresses of its anchors; the anchor "" is the page itself."""
    by_page: dict[str, dict[str, str]] = {}
    for line in MOVED.read_text("utf-8").splitlines():
        old, new = line.split()
        page, sign, anchor = old.partition("#")
        by_page.setdefault(page, {})[sign + anchor] = new
    return by_page


def leads(page: str, anchors: dict[str, str]) -> dict[str, str]:
    """Return new addresses relative to the old page, for a browser."""
    parts = {anchor: new.partition("#") for anchor, new in anchors.items()}
    return {
        anchor: f"{posixpath.relpath(there, page)}/{sign}{name}"
        for anchor, (there, sign, name) in parts.items()
    }


def on_post_build(config: Any) -> None:
    """Write a page at each old address, and add readers' words to the search."""
    index = Path(config.site_dir, "search", "search_index.json")
    document = json.loads(index.read_text("utf-8"))
    for entry in document["docs"]:
        if words := WORDS.get(entry["location"]):
            entry["tags"] = words
    index.write_text(json.dumps(document), "utf-8")
    for page, anchors in moved().items():
        if "" in anchors:
            targets = leads(page, anchors)
            path = Path(config.site_dir, page, "index.html")
            path.parent.mkdir(parents=True, exist_ok=True)
            script = _LEAD_ON.format(json.dumps(targets))
            path.write_text(_OLD_PAGE.format(targets[""], script), "utf-8")


def version_bar(changelog: str, version: str) -> str:
    """Return the line on the version that the pages describe, as a part of a template."""
    unreleased = changelog.partition("## [Unreleased]\n")[2].partition("\n## [")[0]
    if not re.search("^- ", unreleased, re.MULTILINE):
        return f"zmqtriton {version}"
    link = "{{ 'changelog/#unreleased' | url }}"
    return (
        f"This is the documentation of zmqtriton {version} with"
        f' <a href="{link}">changes that are not released yet</a>.'
    )


def on_env(env: Environment, config: Any, files: Files) -> Environment:
    """Put the version on top of each page."""
    version = runpy.run_path(str(ROOT / "stub/zmqtriton_floor/__init__.py"))["__version__"]
    bar = version_bar((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
    env.loader = ChoiceLoader([DictLoader({"main.html": _TEMPLATE.format(bar)}), env.loader])
    return env


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Make empty heads of columns plain cells: screen readers would announce a nameless head."""
    if page.file.src_uri in LONG:
        for group in page.toc.items[0].children:
            group.children.clear()
    address = page.file.src_uri.removesuffix(".md")
    if anchors := moved().get(address):
        html += _LEAD_ON.format(json.dumps(leads(address, anchors)))
    return html.replace("<th></th>", "<td></td>")


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Name each part of the menu by its title: the theme's label of a part with a page is empty."""
    output = re.sub(
        '(<nav class="md-nav" [^>]* aria-labelledby="__nav_[0-9_]+)_label', r"\1_title", output
    )
    return re.sub(
        '(<label class="md-nav__title" for="(__nav_[0-9_]+)")', r'\1 id="\2_title"', output
    )


def sessions(markdown: str) -> str:
    """Return a page with its blocks of commands and outputs in colours."""

    def block(match: re.Match[str]) -> str:
        text = re.sub("^    ", "", match[1], flags=re.MULTILINE).rstrip()
        return f"```console\n{text}\n```\n"

    return _SESSION.sub(block, markdown)


def boxes(markdown: str) -> str:
    """Return a page with its notes and warnings as boxes of the theme."""

    def box(match: re.Match[str]) -> str:
        lines = re.sub("^> ?", "", match[2], flags=re.MULTILINE)
        return f"!!! {match[1].lower()}\n\n{textwrap.indent(lines, ' ' * 4)}"

    return _BOX.sub(box, markdown)


def tabs(markdown: str) -> str:
    """Return a page with its alternatives as tabs of the theme."""

    def tab(match: re.Match[str]) -> str:
        return f'=== "{match[1]}"\n{textwrap.indent(match[2], " " * 4)}'

    return _TABS.sub(lambda match: _TAB.sub(tab, match[1]), markdown)


def description(markdown: str) -> str:
    """Return the first sentence of a page as plain text, or ""."""
    text = re.sub("<!--.*?-->", "", markdown, flags=re.DOTALL)
    paragraphs = (part for part in re.split("\n\n+", text) if not _WRITTEN.match(part))
    first = next((part for part in paragraphs if re.match(r"[*`\[\w]", part)), "")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", first).replace("*", "").replace("`", "")
    sentence = re.match(r"(.*?[.!?])(?:\s|$)", plain, re.DOTALL)
    return " ".join((sentence[1] if sentence else plain).rstrip(":").split())


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite links between files of the repository, and describe the page."""
    path = page.file.src_uri
    page.meta["description"] = description(markdown)
    if path in UNSEARCHED:
        page.meta["search"] = {"exclude": True}
    elif path in BOOSTS:
        page.meta["search"] = {"boost": BOOSTS[path]}
    sources = (name for name, made in PAGES.items() if made == path and name not in SECTIONS)
    source = next(sources, f"docs/{path}")
    is_edited = config.repo_url and not _WRITTEN.search(markdown)
    page.edit_url = f"{config.repo_url.rstrip('/')}/edit/main/{source}" if is_edited else None

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        there = PAGES.get(target) or target.removeprefix("docs/")
        if target in PAGES or target in PICTURES or target.startswith("docs/"):
            anchor = match[2] or (first_anchor(target) if target in SECTIONS else "")
            return posixpath.relpath(there, posixpath.dirname(path) or ".") + anchor
        return match[0]

    return tabs(boxes(sessions(_LINK.sub(rewritten, markdown))))
