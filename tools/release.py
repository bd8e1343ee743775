"""`python3 tools/release.py VERSION [DIRECTORY] [--without=EXTRA,…]`: all files of a release.

The version and the entry of CHANGELOG.md are written into the checkout, if they are not there yet;
commit and tag them. From a copy of the tracked files it builds wheel and sdist of the server and of
packages/, each twice and compared byte by byte; the context of the image; the bill of materials;
and, in a bare root of Debian (see bare_roots.py), the Debian package. In that root everything is
installed and tried. SHA256SUMS lists all files, and is signed if RELEASE_KEY names a key.

Extras that `--without` names are left out, and so are the packages that consist of one of them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import bare_roots

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".venv-uv" / "bin" / "uv"
_WITHOUT = "--without="
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
#: Each file with the version, and the patterns of which the second group is it.
WITH_VERSION = {
    "stub/zmqtriton_floor/__init__.py": (r'^(__version__ = ")([^"]+)',),
    **{
        f"packages/{name}/pyproject.toml": (r'^(version = ")([^"]+)', r'("zmqtriton==)([^"]+)')
        for name in ("pytriton", "tritonserver")
    },
    "packages/client/pyproject.toml": (r'^(version = ")([^"]+)',),
}
PACKAGES = ("pytriton", "tritonserver", "client")
#: The extras that packages consist of.
EXTRA_OF = {"tritonserver": "tritonserver", "client": "door"}
_EXTRAS = "extras/zmqtriton_extras"
_IMAGE_FILES = ("Dockerfile", "compose.yaml", "compose.gpu.yaml", "README.md")
#: The release of Debian that the package is for, and in which everything is tried.
_DEBIAN = os.environ.get("RELEASE_DEBIAN", "trixie")
#: Typed in the bare root, in the clone $src, whose dist has the files; each line must succeed. The
#: parts are of a package, or of "".
_TRIED = (
    (
        "",
        """
python3 -m venv /tmp/wheel
/tmp/wheel/bin/pip install --quiet dist/zmqtriton-{v}-py3-none-any.whl
/tmp/wheel/bin/zmqtriton --version | grep -Fx 'zmqtriton {v}'
cd /tmp && /tmp/wheel/bin/zmqtriton new scale --class > /dev/null
/tmp/wheel/bin/zmqtriton check models
/tmp/wheel/bin/python "$src"/dist/ask.py /tmp/wheel/bin/zmqtriton models
cd "$src"
""",
    ),
    *(
        (
            name,
            f"""
/tmp/wheel/bin/pip install --quiet --no-deps dist/zmqtriton_{name}-{{v}}-*.whl
/tmp/wheel/bin/python -c 'import {module}'
""",
        )
        for name, module in (("tritonserver", "tritonserver"), ("pytriton", "pytriton.triton"))
    ),
    (
        "client",
        """
python3 -m venv /tmp/client
/tmp/client/bin/pip install --quiet dist/zmqtriton_client-{v}-py3-none-any.whl
/tmp/client/bin/pip list --format=freeze | grep -Ev '^pip=' | sed 's/=.*//' > /tmp/client/has
test "$(xargs < /tmp/client/has)" = 'numpy zmqtriton-client'
/tmp/wheel/bin/python dist/ask.py /tmp/wheel/bin/zmqtriton /tmp/models \\
    /tmp/client/bin/python dist/ask_client.py localhost
mkdir -m 700 /tmp/run
/tmp/client/bin/pip install --quiet "$(ls dist/zmqtriton_client-{v}-*.whl)[grpc,door]"
/tmp/wheel/bin/python dist/ask.py /tmp/wheel/bin/zmqtriton /tmp/models \\
    /tmp/client/bin/python dist/ask_client.py localhost grpc://localhost /tmp/run/door
/tmp/client/bin/pip uninstall --quiet --yes zmqtriton-client
test -z "$(find /tmp/client/lib -name 'zmqtriton*')"
""",
    ),
    (
        "",
        """
python3 -m venv /tmp/sdist
/tmp/sdist/bin/pip install --quiet dist/zmqtriton-{v}.tar.gz
/tmp/sdist/bin/python dist/ask.py /tmp/sdist/bin/zmqtriton /tmp/models
cd /tmp
sh "$src"/deploy/debian/build.sh "$src"/dist/zmqtriton-{v}-py3-none-any.whl "$src"/dist
apt-get -qq update
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -y --no-install-recommends install "$src"/dist/zmqtriton_*.deb > /dev/null
/usr/bin/python3 "$src"/dist/ask.py /usr/bin/zmqtriton /tmp/models
apt-get -qq -y purge zmqtriton > /dev/null
test ! -e /usr/bin/zmqtriton
""",
    ),
)
#: Serves the model scale and asks it: the standard library is enough. A command behind asks, too.
_ASK = """
import json, subprocess, sys, time, urllib.request
program, models, *client = sys.argv[1:]
door = ["--zmq-door", "--runtime-directory=/tmp/run"] if "/tmp/run/door" in client else []
server = subprocess.Popen([program, f"--model-repository={models}", "--http-address=127.0.0.1",
                           "--grpc-address=127.0.0.1", "--log-info=false", *door])
body = {"inputs": [{"name": "X", "shape": [3], "datatype": "FP32", "data": [1, 1, 1]}]}
url = "http://127.0.0.1:8000/v2/models/scale/infer"
until = time.monotonic() + 120
while True:
    try:
        with urllib.request.urlopen(url, json.dumps(body).encode()) as answer:
            outputs = json.load(answer)["outputs"]
        break
    except OSError:
        assert time.monotonic() < until and server.poll() is None, "it does not answer"
        time.sleep(0.2)
assert outputs[0]["data"] == [2, 2, 2], outputs
if client:
    subprocess.run(client, check=True)
server.terminate()
assert server.wait(60) == 0
"""
#: Asks the same model with the clients of zmqtriton-client, at each address.
_ASK_CLIENT = """
import sys
import numpy, zmqtriton
from zmqtriton.pytriton.client import ModelClient
x = numpy.ones(3, numpy.float32)
for address in sys.argv[1:]:
    if address.endswith("door"):
        with zmqtriton.Door(address) as server:
            [answer] = server.model("scale").infer(inputs={"X": x})
            y = answer.outputs["Y"]
    else:
        with ModelClient(address, "scale") as client:
            y = client.infer_sample(x)["Y"]
    assert y.tolist() == [2, 2, 2], (address, y)
    print(address, "answers a client alone")
"""
#: Prints what is installed, as JSON.
_INSTALLED = """
import importlib.metadata, json
listed = []
for each in importlib.metadata.distributions():
    data = each.metadata
    listed.append({"name": data["Name"], "version": each.version,
        "license": data["License-Expression"] or data["License"] or "",
        "requires": each.requires or []})
print(json.dumps(listed))
"""


class ReleaseError(Exception):
    """Raised if there is no release; the text says why."""


def write_version(root: Path, version: str) -> list[str]:
    """Write the version into all places of it; return the files that were changed."""
    changed = []
    for name, patterns in WITH_VERSION.items():
        path = root / name
        before = text = path.read_text("utf-8")
        for pattern in patterns:
            text, count = re.subn(
                pattern, lambda match: match[1] + version, text, flags=re.MULTILINE
            )
            if not count:
                raise ReleaseError(f"{name} names no version")
        if text != before:
            path.write_text(text, "utf-8")
            changed.append(name)
    return changed


def write_entry(root: Path, version: str, day: str) -> list[str]:
    """Move unreleased entries in CHANGELOG.md to the version; return the file if it was changed."""
    path = root / "CHANGELOG.md"
    text = path.read_text("utf-8")
    if f"\n## [{version}]" in text:
        return []
    head = "## [Unreleased]\n"
    if head not in text:
        raise ReleaseError("CHANGELOG.md has no heading [Unreleased]")
    path.write_text(text.replace(head, f"{head}\n## [{version}] - {day}\n", 1), "utf-8")
    return [path.name]


def entry_of(root: Path, version: str) -> str:
    """Return the entry of the version in CHANGELOG.md."""
    text = (root / "CHANGELOG.md").read_text("utf-8")
    entry = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", text, re.MULTILINE | re.DOTALL
    )
    if entry is None or not entry[1].strip():
        raise ReleaseError(f"CHANGELOG.md says nothing of {version}")
    return entry[1].strip() + "\n"


def packages(without: Sequence[str]) -> list[str]:
    """Return the packages that are built without these extras."""
    return [name for name in PACKAGES if EXTRA_OF.get(name) not in without]


def copy_tracked(directory: Path, mode: int, without: Sequence[str] = ()) -> None:
    """Copy the tracked files, all with the same file mode, except some extras."""
    left_out = tuple(f"{_EXTRAS}/{name}/" for name in without)
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        if name.startswith(left_out):
            continue
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
        target.chmod(mode | (0o111 if os.access(ROOT / name, os.X_OK) else 0))


def repacked_sdist(data: bytes, epoch: int) -> bytes:
    """Return an sdist without traces of the day, the machine and the user."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as source,
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda one: one.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def repacked_wheel(data: bytes, epoch: int) -> bytes:
    """Return a wheel without such traces; names, contents and RECORD of its files stay."""
    packed = io.BytesIO()
    moment = datetime.fromtimestamp(max(epoch, 315532800), timezone.utc).timetuple()[:6]
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        # RECORD is the last, as the format wants it
        for name in sorted(source.namelist(), key=lambda one: (one.endswith("/RECORD"), one)):
            info = zipfile.ZipInfo(name, moment)
            info.compress_type = zipfile.ZIP_DEFLATED
            is_program = source.getinfo(name).external_attr >> 16 & 0o100
            info.external_attr = (0o100755 if is_program else 0o100644) << 16
            target.writestr(info, source.read(name))
    return packed.getvalue()


def build(source: Path, out: Path, epoch: int, without: Sequence[str] = (), *, umask: int) -> None:
    """Build the sdists and the wheels of a copy of the tree."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    for place in (source, *(source / "packages" / name for name in packages(without))):
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(
                [str(UV), "build", "--quiet", "--out-dir", scratch, str(place)],
                check=True,
                env=environment,
                umask=umask,
            )
            for path in Path(scratch).iterdir():
                if path.name.endswith(".tar.gz"):
                    (out / path.name).write_bytes(repacked_sdist(path.read_bytes(), epoch))
                elif path.suffix == ".whl":
                    (out / path.name).write_bytes(repacked_wheel(path.read_bytes(), epoch))


def digests(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.is_file()
    }


def build_twice(out: Path, epoch: int, without: Sequence[str]) -> None:
    """Build in two places with different rights. Raises ReleaseError if the bytes differ."""
    results = []
    for number, (mode, umask) in enumerate(((0o644, 0o022), (0o640, 0o077))):
        with tempfile.TemporaryDirectory(prefix=f"release-{'x' * number}") as scratch:
            source, made = Path(scratch) / "source", Path(scratch) / "made"
            made.mkdir()
            copy_tracked(source, mode, without)
            build(source, made, epoch, without, umask=umask)
            results.append(digests(made))
            if not number:
                shutil.copytree(made, out, dirs_exist_ok=True)
    first, second = results
    if first != second:
        names = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
        raise ReleaseError(f"built twice, {', '.join(names)} had different bytes")
    print(f"built twice with the same bytes: {', '.join(first)}", flush=True)


def write_image_context(out: Path, version: str, epoch: int) -> None:
    """Write the context of `docker build`: the Dockerfile, and the wheel instead of a checkout."""
    wheel = f"zmqtriton-{version}-py3-none-any.whl"
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8")
    files = {name: (ROOT / "deploy" / "docker" / name).read_bytes() for name in _IMAGE_FILES} | {
        "Dockerfile": text.replace(
            "ARG ZMQTRITON=/src\n", f"ARG ZMQTRITON=/src/{wheel}\n"
        ).encode(),
        wheel: (out / wheel).read_bytes(),
    }
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"zmqtriton-{version}-image/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    compressed = gzip.compress(raw.getvalue(), mtime=epoch)
    path = out / f"zmqtriton-{version}-image.tar.gz"
    path.write_bytes(repacked_sdist(compressed, epoch))


def _name(text: str) -> str:
    """Return the name in a requirement, as the index has it."""
    return re.split(r"[^\w.-]", text, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")


def write_bill(out: Path, version: str, epoch: int) -> None:
    """Write the packages of an installation as a bill of materials, in CycloneDX 1.6."""
    with tempfile.TemporaryDirectory() as scratch:
        python = Path(scratch) / "venv" / "bin" / "python"
        subprocess.run([str(UV), "venv", "--quiet", str(python.parent.parent)], check=True)
        wheel = out / f"zmqtriton-{version}-py3-none-any.whl"
        install = [str(UV), "pip", "install", "--quiet", "--python", str(python), str(wheel)]
        subprocess.run(install, check=True)
        printed = subprocess.run(
            [str(python), "-I", "-c", _INSTALLED], check=True, capture_output=True, text=True
        ).stdout
    distributions = sorted(json.loads(printed), key=lambda one: _name(one["name"]))
    references = {
        _name(one["name"]): f"pkg:pypi/{_name(one['name'])}@{one['version']}"
        for one in distributions
    }

    def component(one: dict[str, str]) -> dict[str, object]:
        reference = references[_name(one["name"])]
        entry: dict[str, object] = {
            "type": "application" if _name(one["name"]) == "zmqtriton" else "library",
            "bom-ref": reference,
            "name": one["name"],
            "version": one["version"],
            "purl": reference,
        }
        words = one["license"].strip().split("\n")[0]
        if words:
            is_expression = re.fullmatch(r"[\w.+-]+( (AND|OR|WITH) [\w.+-]+)*", words)
            entry["licenses"] = (
                [{"expression": words}] if is_expression else [{"license": {"name": words}}]
            )
        return entry

    components = [component(one) for one in distributions]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": next(one for one in components if one["name"] == "zmqtriton"),
        },
        "components": [one for one in components if one["name"] != "zmqtriton"],
        "dependencies": [
            {
                "ref": references[_name(one["name"])],
                "dependsOn": sorted(
                    references[name]
                    for name in {_name(text) for text in one["requires"] if "extra ==" not in text}
                    if name in references
                ),
            }
            for one in distributions
        ],
    }
    path = out / f"zmqtriton-{version}.cdx.json"
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    print(f"bill of materials: {len(components)} components", flush=True)


def try_in_bare_root(out: Path, version: str, without: Sequence[str]) -> None:
    """Build Debian's package in a root with only Python; install and try everything there."""
    if reason := bare_roots.reason_against():
        if os.environ.get("ZT_CI"):
            raise ReleaseError(f"no bare root: {reason}")
        print(f"not tried, and without Debian's package: {reason}", flush=True)
        return
    machine = bare_roots.Machine.of(_DEBIAN)
    root = machine.root
    source = root / machine.source
    bare_roots.make_root(_DEBIAN, machine)
    shutil.copytree(out, source / "dist", dirs_exist_ok=True)
    (source / "dist" / "ask.py").write_text(_ASK)
    (source / "dist" / "ask_client.py").write_text(_ASK_CLIENT)
    for name in ("tmp/wheel", "tmp/sdist", "tmp/client", "tmp/models", "tmp/run"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("test_scale.py", "client_scale.py"):
        (root / "tmp" / name).unlink(missing_ok=True)
    parts = ("", *packages(without))
    tried = "".join(text.strip("\n") + "\n" for name, text in _TRIED if name in parts)
    script = "set -ex\nsrc=$PWD\n" + tried.format(v=version)
    (source / "try.sh").write_text(script)
    if bare_roots.start(machine, "sh", "try.sh").wait():
        raise ReleaseError("what is installed in a bare root does not do what it should")
    for path in (source / "dist").glob("*.deb"):
        shutil.copy(path, out)
    print(f"installed, asked and removed in a bare {_DEBIAN}", flush=True)


def sign(out: Path) -> None:
    """Write SHA256SUMS; if RELEASE_KEY is a file with an SSH key, or a GnuPG key, sign it."""
    sums = out / "SHA256SUMS"
    lines = [f"{digest}  {name}\n" for name, digest in digests(out).items()]
    sums.write_text("".join(lines), "utf-8")
    key = os.environ.get("RELEASE_KEY", "")
    if not key:
        print("not signed: RELEASE_KEY names no key", flush=True)
        return
    if Path(key).is_file():
        command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", key, str(sums)]
    else:
        command = ["gpg", "--batch", "--yes", "--armor", "--local-user", key]
        command += ["--detach-sign", str(sums)]
    subprocess.run(command, check=True)


def release(version: str, out: Path, without: Sequence[str] = ()) -> None:
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"'{version}' is no version such as 1.2.3 or 1.2.3rc1")
    for name in without:
        if not (ROOT / _EXTRAS / name / "__init__.py").is_file():
            raise ReleaseError(f"there is no extra '{name}'")
    git = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    epoch = int(subprocess.run(git, check=True, capture_output=True, text=True).stdout)
    day = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%d")
    changed = write_version(ROOT, version) + write_entry(ROOT, version, day)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    build_twice(out, epoch, without)
    (out / f"zmqtriton-{version}-changes.md").write_text(entry_of(ROOT, version), "utf-8")
    write_image_context(out, version, epoch)
    write_bill(out, version, epoch)
    try_in_bare_root(out, version, without)
    sign(out)
    print(f"\n{out}:")
    for path in sorted(out.iterdir()):
        print(f"  {path.stat().st_size:>10,}  {path.name}")
    if changed:
        print(f"\nChanged: {', '.join(changed)}. Commit them, and tag the commit v{version}.")


def main(words: list[str]) -> int:
    named = [word.partition("=")[2] for word in words if word.startswith(_WITHOUT)]
    places = [word for word in words if not word.startswith(_WITHOUT)]
    if len(places) not in (1, 2):
        print("usage: make release VERSION=1.2.3 [WITHOUT=EXTRA,…]")
        return 2
    without = [name for name in ",".join(named).split(",") if name]
    try:
        out = Path(places[1]) if places[1:] else ROOT / "build" / "release"
        release(places[0], out, without)
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
