"""Has the model read the documentation of Python's modules, and writes what it needs of it."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import numpy as np

VERSION = Path(__file__).resolve().parent / "models" / "chat" / "1"
sys.path.insert(0, str(VERSION))

from language import WORD  # noqa: E402

MODULES = """
abc argparse array ast asyncio base64 bisect bz2 calendar cmath codecs collections configparser
contextlib copy csv dataclasses datetime decimal difflib email enum fractions functools getpass glob
gzip hashlib heapq html http.client inspect io ipaddress itertools json keyword logging lzma math
mimetypes numbers operator os pathlib pickle platform pprint queue random re sched secrets select
selectors shelve shlex shutil signal socket socketserver sqlite3 ssl statistics string struct
subprocess sys tarfile tempfile textwrap threading time timeit tokenize traceback types typing
unittest urllib.parse urllib.request uuid warnings weakref xml.etree.ElementTree zipfile zlib
""".split()
SENTENCE = re.compile(r"(?<=[.!?])\s+")
#: A sentence of prose: words and their signs, and no code.
PROSE = re.compile(r"[A-Z][A-Za-z0-9'(),;: -]*[.!?]")


def documents(module):
    """Yield what a module, its classes and its functions say of themselves."""
    yield inspect.getdoc(module) or ""
    for item in vars(module).values():
        if inspect.isclass(item) or inspect.isroutine(item):
            yield inspect.getdoc(item) or ""
        if inspect.isclass(item):
            for member in vars(item).values():
                yield inspect.getdoc(member) or "" if inspect.isroutine(member) else ""


def sentences():
    """Return the sentences in the order of the modules, each once."""
    seen = {}
    for name in MODULES:
        for document in documents(importlib.import_module(name)):
            for paragraph in document.split("\n\n"):
                for sentence in SENTENCE.split(" ".join(paragraph.split())):
                    if PROSE.fullmatch(sentence) and 4 <= len(sentence.split()) <= 40:
                        seen.setdefault(sentence)
    return list(seen)


def main():
    text = [word for sentence in sentences() for word in WORD.findall(sentence.lower())]
    words = sorted(set(text))
    numbers = {word: number for number, word in enumerate(words)}
    target = VERSION / "text.npz"
    np.savez_compressed(target, words=words, text=np.array([numbers[w] for w in text], np.int32))
    print(f"{len(text)} words read, {len(words)} different ones; the model is in {target}")


if __name__ == "__main__":
    main()
