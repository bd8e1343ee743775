"""The lines of the receipt are those that RapidOCR reads when it is called directly."""

from pathlib import Path

from rapidocr import RapidOCR


def test_lines_are_those_of_rapidocr(make, serve, here: Path) -> None:
    make("make.py", "receipt.png")
    server = serve("read_text.py")

    lines = server.ask("read_text", body=(here / "receipt.png").read_bytes(), kind="image/png")

    directly = RapidOCR()(here / "receipt.png", use_cls=False).txts
    assert [*directly] == [line["text"] for line in lines]
    assert "Total" in lines[-2]["text"]
