"""The tasks of `examples/` in FastAPI, as its documentation has it.

    python -m tools.example_figures.fastapi_peer digits 8000

It calls the classes and functions of the examples, which `@model` has left as they are, so that
only the servers differ. FastAPI runs plain functions in its threads; streams are server-sent
events. There are as many processes as the example has instances.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import runpy
import sys
import types
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Processes of an example that has several.
PROCESSES = {"file-types": 2, "forecast": 2, "pictures": 2, "text-in-images": 2}


def load(example: str, file: str) -> dict[str, Any]:
    """Return the names of a file of an example."""
    here = EXAMPLES / example
    sys.path.insert(0, str(here))
    return runpy.run_path(str(here / file))


def as_json(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value


def events(values: Iterator[Any]) -> Iterator[str]:
    for value in values:
        yield f"data: {json.dumps({'output': as_json(value)})}\n\n"


# ------------------------------------------------------------- what each computes


def digits() -> Callable[[list[bytes]], Any]:
    from PIL import Image

    call = load("digits", "digits.py")["Digits"]()
    return lambda files: call([Image.open(io.BytesIO(each)) for each in files])


def file_types() -> Callable[[list[bytes]], Any]:
    identify = load("file-types", "file_types.py")["FileTypes"]().identify
    return lambda files: [identify(each) for each in files]


def search() -> Callable[[list[str]], Any]:
    call = load("search", "search.py")["search"]
    return lambda queries: call(queries)


def chat() -> Callable[[Any], Iterator[str]]:
    names = load("language-model", "chat.py")
    model, End = names["Chat"](), names["End"]

    def answer(document: Any) -> Iterator[str]:
        state, piece = model.admit(document["messages"]), None
        while not isinstance(piece, End):
            [piece] = model.step([state])
            yield piece.value.output if isinstance(piece, End) else piece.output

    return answer


def draw() -> Callable[[Any], Iterator[str]]:
    model = load("pictures", "draw.py")["Draw"]()

    def answer(document: Any) -> Iterator[str]:
        for picture in model(**document):
            file = io.BytesIO()
            picture.save(file, "PNG")
            yield f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"

    return answer


def spoken() -> Callable[[bytes], Iterator[Any]]:
    import numpy as np

    model = load("speech", "models/spoken/1/model.py")["Spoken"]()

    def answer(data: bytes) -> Iterator[Any]:
        with wave.open(io.BytesIO(data)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
        yield from model(types.SimpleNamespace(rate=16000, samples=samples[:, np.newaxis]))

    return answer


def read_text() -> Callable[[bytes], Iterator[Any]]:
    from PIL import Image

    model = load("text-in-images", "read_text.py")["ReadText"]()
    return lambda data: model(Image.open(io.BytesIO(data)))


def number() -> Callable[[bytes], Any]:
    """Return the repository's whole way from a picture to a number, in one process."""
    import joblib
    import numpy as np
    from PIL import Image

    sys.modules["triton_python_backend_utils"] = types.ModuleType("triton_python_backend_utils")
    split = load("triton-repository", "models/number/1/model.py")["split"]
    fields_of = load("triton-repository", "models/prepare/1/model.py")["fields_of"]
    machine = joblib.load(EXAMPLES / "triton-repository/models/classify/1/digits.joblib")

    def read(data: bytes) -> Any:
        parts = split(np.asarray(Image.open(io.BytesIO(data)).convert("L")))
        probabilities = machine.predict_proba(np.stack([fields_of(part) for part in parts]))
        digits = "".join(map(str, probabilities.argmax(1)))
        return {"number": digits, "probability": float(probabilities.max(1).prod())}

    return read


def forecast() -> Callable[[Any], Any]:
    call = load("forecast", "forecast.py")["forecast"]
    return lambda document: call(**document)._asdict()


def tables() -> Callable[[Any], Any]:
    call = load("tables", "tables.py")["Growers"]()
    return lambda document: call(document["wines"])


def one_of(compute: Callable[[list[Any]], list[Any]]) -> Callable[[Any], Any]:
    """Return a function that computes a batch of one."""
    return lambda value: compute([value])[0]


def one_query() -> Callable[[Any], Any]:
    call = one_of(search())
    return lambda document: [as_json(hit) for hit in call(document["query"])]


# ------------------------------------------------------------------------- FastAPI

#: What makes the function of each example, for the bytes of a file or for a document of JSON.
OF_FILES: dict[str, Callable[[], Callable[[bytes], Any]]] = {
    "digits": lambda: one_of(digits()),
    "file-types": lambda: one_of(file_types()),
    "speech": spoken,
    "text-in-images": read_text,
    "triton-repository": number,
}
OF_DOCUMENTS: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "forecast": forecast,
    "language-model": chat,
    "pictures": draw,
    "search": one_query,
    "tables": tables,
}


def fastapi_app(example: str) -> Any:
    from fastapi import Body, FastAPI, UploadFile
    from fastapi.responses import StreamingResponse

    # FastAPI reads the hints, which are texts in this file
    globals().update(UploadFile=UploadFile, Body=Body)
    app = FastAPI()
    compute = {**OF_FILES, **OF_DOCUMENTS}[example]()

    def respond(value: Any) -> Any:
        output = compute(value)
        if isinstance(output, Iterator):
            return StreamingResponse(events(output), media_type="text/event-stream")
        return {"output": as_json(output)}

    def of_file(file: UploadFile) -> Any:
        return respond(file.file.read())

    def of_document(document: Annotated[Any, Body()]) -> Any:
        return respond(document)

    app.post("/", response_model=None)(of_file if example in OF_FILES else of_document)
    return app


def app() -> Any:
    """Return the application for a process of uvicorn."""
    return fastapi_app(os.environ["EXAMPLE"])


def run_fastapi(example: str, port: int) -> None:
    import uvicorn

    os.environ["EXAMPLE"] = example
    workers = PROCESSES.get(example, 1)
    uvicorn.run(
        "tools.example_figures.fastapi_peer:app", factory=True, port=port, workers=workers,
        log_level="warning", access_log=False,
    )  # fmt: skip


if __name__ == "__main__":
    run_fastapi(sys.argv[1], int(sys.argv[2]))
