"""What kind of file is this? Google's magika looks at its content, not at its name."""

from dataclasses import dataclass
from pathlib import Path

from magika import Magika

from zmqtriton import File, model


@dataclass
class FileType:
    label: str
    description: str
    mime_type: str
    score: float


@model(batch=32, instances=2, examples=[{"file": Path(__file__)}])
class FileTypes:
    """Tell the type of a file by its content."""

    def __init__(self) -> None:
        self.magika = Magika()

    def __call__(self, file: list[File]) -> list[FileType]:
        return [self.identify(each.data) for each in file]

    def identify(self, data: bytes) -> FileType:
        found = self.magika.identify_bytes(data)
        kind = found.output
        return FileType(kind.label, kind.description, kind.mime_type, round(found.score, 4))
