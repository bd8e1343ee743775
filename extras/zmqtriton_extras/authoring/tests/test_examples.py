"""`zmqtriton example`: what it writes, and that all of them do what their pages say."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.support.examples import run_script
from tests.support.needs import import_or_skip
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually
from zmqtriton.main import main
from zmqtriton_extras.authoring.example import folders

pytestmark = pytest.mark.slow

COLOURS = [
    "ff2010: red",
    "102030: black",
    "f0f0e0: white",
    "20e040: green",
    "0000c0: blue",
    "fff010: yellow",
]


@pytest.mark.extra("backends", "openai", "pipelines", "pytriton")
def test_an_example_that_is_unknown_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 1 == main(["example", "imgae"])

    assert (
        "error: there is no example 'imgae'; usage: zmqtriton example NAME [DIRECTORY], "
        "NAME one of batch, bind, chat, digits, file-types, forecast, image, language-model, "
        "notebook, onnx, pictures, search, sentiment, speech, tables, text-in-images, torch, "
        "trees, triton-repository\n"
    ) == capsys.readouterr().err


@pytest.mark.parametrize("words", [["-h"], ["batch", "--help"]])
def test_help_writes_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert 0 == main(["example", *words])

    assert not list(tmp_path.iterdir())


#: What is told of beside its page, and is there.
PLACES = {
    "batch": ("job.py",),
    "bind": ("serve.py", "client.py"),
    "notebook": ("bind.ipynb",),
}


@pytest.mark.parametrize("name", folders())
def test_what_is_written_is_told_and_the_users_changes_are_kept(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "mine"
    assert 0 == main(["example", name, str(directory)])
    others = () if (directory / "requirements.txt").exists() else ("make.py", "models", "client.py")
    places = ("README.md", *PLACES.get(name, others))
    (directory / places[-1]).write_text("changed")

    assert 0 == main(["new", "--from", name, str(directory)])

    assert "changed" == (directory / places[-1]).read_text()
    output = capsys.readouterr().out
    assert [True] * len(places) == [
        f"{directory}/{place}" in output and (directory / place).exists() for place in places
    ]


#: All but that of images, which has to have them first, and those that need further packages.
CLIENTS = [
    folder / "client.py"
    for name, folder in folders().items()
    if name != "image"
    and (folder / "client.py").exists()
    and not (folder / "requirements.txt").exists()
]
ANOTHER = pytest.mark.long(
    "extras/authoring/test_examples.py::test_a_client_without_a_server_says_so_in_one_sentence"
)


@pytest.mark.parametrize(
    "client",
    [CLIENTS[0], *(pytest.param(client, marks=ANOTHER) for client in CLIENTS[1:])],
    ids=[client.parent.name for client in CLIENTS],
)
@pytest.mark.system
def test_a_client_without_a_server_says_so_in_one_sentence(client: Path) -> None:
    # nobody has this port, since a bound socket does not listen
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-B", str(client), "--url", url]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)

    assert (1, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert done.stderr.startswith(f"no server answers on {url}, see README.md: ")


@pytest.mark.extra("backends")
@pytest.mark.long(
    "extras/pipelines/test_pipelines.py::test_sentences_are_told_by_the_ensemble_and_by_the_model",
    "extras/backends/system/test_onnxruntime.py::test_a_file_alone_is_a_model_with_its_tensors_and_batches",
)
@pytest.mark.system
def test_colours_are_named_by_an_onnx_file(tmp_path: Path) -> None:
    main(["example", "onnx", str(tmp_path / "onnx")])
    run_script(tmp_path / "onnx" / "make.py")

    models = [tmp_path / "onnx" / "models" / "colours"]
    with Server(tmp_path / "server", models=models, frontends=()) as server:
        url = f"127.0.0.1:{server.http_port}"
        printed = run_script(tmp_path / "onnx" / "client.py", "--url", url)

    assert COLOURS == printed.splitlines()


@pytest.mark.extra("backends")
@pytest.mark.long(
    "extras/pipelines/test_pipelines.py::test_sentences_are_told_by_the_ensemble_and_by_the_model",
    "extras/backends/system/test_fil.py::test_a_file_and_a_backend_are_enough",
)
@pytest.mark.system
def test_colours_are_named_by_a_forest_on_a_server_of_the_client(tmp_path: Path) -> None:
    import_or_skip("lightgbm")
    main(["example", "trees", str(tmp_path / "trees")])
    run_script(tmp_path / "trees" / "make.py")

    printed = run_script(tmp_path / "trees" / "client.py", "--serve", "fe0201", "000000")

    assert ["fe0201: red", "000000: black"] == printed.splitlines()


@pytest.mark.extra("openai")
@pytest.mark.long("extras/openai/system/test_openai_calls.py::test_a_response_is_streamed")
@pytest.mark.system
def test_openai_s_client_chats_with_a_model_that_has_read_python_s_documentation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "chat"
    main(["example", "chat", str(directory)])
    guide = capsys.readouterr().out
    assert f"zmqtriton --model-repository={directory}/models --allow-openai\n" in guide
    assert "needs: pip install openai\n" in guide
    run_script(directory / "make.py")
    models, options = [directory / "models" / "chat"], ["--allow-openai"]

    with Server(tmp_path / "server", models, options=options, frontends=()) as server:
        url = f"127.0.0.1:{server.http_port}"
        lines = run_script(directory / "client.py", "--url", url, "What is a socket?").splitlines()

    assert "> What is a socket?" == lines[0]
    assert "socket" in lines[1].lower()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60):
            return True
    except OSError:
        return False


@pytest.mark.extra("pytriton")
@pytest.mark.long(
    "extras/pytriton/system/test_triton.py::test_ctrl_c_ends_a_script_and_its_server",
    "extras/pytriton/system/test_triton.py::test_a_function_of_a_batch_with_checked_outputs",
)
@pytest.mark.system
def test_flowers_are_told_by_a_function_of_a_script(tmp_path: Path) -> None:
    directory = tmp_path / "bind"
    main(["example", "bind", str(directory)])
    http, grpc, metrics = free_ports(3)
    ports = {"HTTP_PORT": http, "GRPC_PORT": grpc, "METRICS_PORT": metrics}
    variables = {f"PYTRITON_TRITON_CONFIG_{name}": str(port) for name, port in ports.items()}

    log = (tmp_path / "log").open("wb")
    command = [sys.executable, "-B", str(directory / "serve.py")]
    with (
        log,
        subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **variables}
        ) as process,
    ):
        try:
            # the client waits for no longer than five seconds
            eventually(lambda: answers(f"http://127.0.0.1:{http}/v2/models/iris/ready"), 120.0)
            printed = run_script(directory / "client.py", "--url", f"127.0.0.1:{http}")
            process.send_signal(signal.SIGINT)
            status = process.wait(60)
        finally:
            process.kill()

    assert ["setosa", "versicolor", "virginica"] == [
        line.split()[0] for line in printed.splitlines()
    ]
    assert 0 == status, (tmp_path / "log").read_text()


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    path = folders()["image"] / "models" / "preprocessing" / "1" / "pictures.py"
    specification = importlib.util.spec_from_file_location("pictures", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def png(image: np.ndarray, filters: list[int], colour: int = 2) -> bytes:
    """The image as a file, its rows filtered in turn as the format describes."""
    height, width, channels = image.shape
    padded = np.zeros((height + 1, width + 1, channels), np.int64)
    padded[1:, 1:] = image
    rows = b""
    for y in range(height):
        kind = filters[y % len(filters)]
        left, up, corner = padded[y + 1, :-1], padded[y, 1:], padded[y, :-1]
        estimate = left + up - corner
        distances = np.abs(np.stack([estimate - left, estimate - up, estimate - corner]))
        nearest = np.choose(distances.argmin(0), [left, up, corner])
        guess = [np.zeros_like(up), left, up, (left + up) // 2, nearest][kind]
        rows += (
            bytes([kind]) + ((image[y].astype(np.int64) - guess) % 256).astype(np.uint8).tobytes()
        )
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, colour, 0, 0, 0])
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        for kind, data in chunks
    )


@pytest.mark.parametrize("filters", [[0], [1], [2], [3], [4], [4, 3, 2, 1, 0]])
def test_every_way_to_write_a_png_file_is_read(pictures: ModuleType, filters: list[int]) -> None:
    image = np.random.default_rng(2).integers(0, 256, (7, 5, 3), dtype=np.uint8)

    assert image.tolist() == pictures.decode(png(image, filters)).tolist()


def test_grey_and_transparent_files_become_colour(pictures: ModuleType) -> None:
    image = np.random.default_rng(2).integers(0, 256, (3, 4, 4), dtype=np.uint8)

    grey = pictures.decode(png(image[..., :2], [1], colour=4))
    colour = pictures.decode(png(image, [1], colour=6))

    assert np.repeat(image[..., :1], 3, axis=2).tolist() == grey.tolist()
    assert image[..., :3].tolist() == colour.tolist()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda file: b"GIF89a" + file, "this is no PNG file"),
        (lambda file: file[:8], "this PNG file has no header"),
        (lambda file: file[:33], "this PNG file is not complete"),
        (lambda file: file.replace(b"IDATx", b"IDATy"), "this PNG file is damaged"),
        (lambda file: file.replace(b"\x08\x02\0\0\0", b"\x10\x02\0\0\0"), "only plain PNG files"),
        (lambda file: file[:16] + b"\xff" * 8 + file[24:], "only plain PNG files"),
    ],
)
def test_what_is_no_such_file_is_an_error_that_says_so(
    pictures: ModuleType, spoil: object, said: str
) -> None:
    file = png(np.zeros((4, 4, 3), np.uint8), [0])
    assert callable(spoil)

    with pytest.raises(ValueError, match=said):
        pictures.decode(spoil(file))
