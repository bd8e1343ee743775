"""Images, sounds and files as arguments and results; each has the bytes of one file."""

from __future__ import annotations

import base64
import importlib
import io
import mimetypes
import os
import shutil
import sys
import tempfile
import wave
import weakref
from functools import cached_property
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

import numpy as np

from zmqtriton_extras.functions.backend.kinds import (
    Kind,
    MismatchError,
    array_of_one,
    as_bytes,
    convert_all,
    from_base64,
)
from zmqtriton_extras.functions.backend.names import CONTENT

#: Suffixes of request parameters about a file, as in "image.filename".
WORDS = ("filename", "content_type")
_NOTHING: Dict[str, Any] = {}
_MAX_INT16 = 32767
#: Maximum bytes of a file name.
_MAX_NAME = 255
#: Content types, with an offset and the bytes that their files have there.
_MAGIC = (
    ("image/png", 0, b"\x89PNG"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
    ("image/bmp", 0, b"BM"),
    ("image/tiff", 0, b"II*\0"),
    ("image/tiff", 0, b"MM\0*"),
    ("image/avif", 4, b"ftypavif"),
    ("audio/wav", 8, b"WAVE"),
    ("audio/mpeg", 0, b"ID3"),
    ("audio/mpeg", 0, b"\xff\xfb"),
    ("audio/ogg", 0, b"OggS"),
    ("audio/flac", 0, b"fLaC"),
)


class Media:
    """The content of a file that a client has sent, or that a function returns."""

    content_type = "application/octet-stream"

    def __init__(self, data: Any, name: str = "", content_type: str = "") -> None:
        """Set up with the bytes, or a view of them, and the client's file name and content type."""
        self._data = data
        self._name = name
        head, major = bytes(data[:12]), self.content_type.partition("/")[0]
        own = (
            of for of, at, magic in _MAGIC if of.startswith(major) and head[at:].startswith(magic)
        )
        self.content_type = next(own, content_type or self.content_type)

    @property
    def data(self) -> bytes:
        return bytes(self._data)

    @property
    def name(self) -> str:
        """The client's file name without directories, or ""."""
        name = self._name.replace("\\", "/").rpartition("/")[2].replace("\0", "")
        name = name.encode("utf-8", "ignore")[-_MAX_NAME:].decode("utf-8", "ignore")
        return "" if name in (".", "..") else name

    @property
    def suffix(self) -> str:
        """The suffix of the file name, or else of the client's content type, such as ".png"."""
        if self.name or self.content_type == Media.content_type:
            return os.path.splitext(self.name)[1]
        return mimetypes.guess_extension(self.content_type.partition(";")[0]) or ""

    def check(self) -> None:
        """Read the whole content. Raises MismatchError if it is damaged."""


class File(Media):
    """Any file. Its `path` is written at the first use, and deleted with this object."""

    @cached_property
    def path(self) -> str:
        if self.suffix:  # libraries look at it
            # the server removes its directories when this process is killed; Triton has none
            make = getattr(sys.modules.get("triton_python_backend_utils"), "make_directory", str)
            directory = make() or tempfile.mkdtemp()
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
            path = os.path.join(directory, self.name or f"file{self.suffix}")
        else:  # without a name in any directory
            file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this exists
            weakref.finalize(self, file.close)
            path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        with open(path, "wb") as writer:
            writer.write(self._data)
        self._data = None
        return path

    @property
    def data(self) -> bytes:
        if self._data is not None:
            return super().data
        with open(self.path, "rb") as file:
            return file.read()


class Image(Media):
    """An image. `np.asarray(image)` and `image.pil` need Pillow."""

    content_type = "image/png"

    @property
    def pil(self) -> Any:
        pillow = importlib.import_module("PIL.Image")
        try:
            return pillow.open(io.BytesIO(self.data))
        except pillow.UnidentifiedImageError:
            raise MismatchError("expected a picture that Pillow can read") from None

    def check(self) -> None:
        try:
            self.pil.load()
        except ImportError:
            return  # the function reads it by other means
        except (OSError, SyntaxError, ValueError) as error:  # as Pillow's readers raise them
            raise MismatchError(f"expected a picture that is whole: {error}") from None

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.pil, dtype)

    @staticmethod
    def of(picture: Any) -> Image:
        """Make an Image, as PNG, of an array or a Pillow image."""
        pillow, file = importlib.import_module("PIL.Image"), io.BytesIO()
        whole = picture if hasattr(picture, "save") else pillow.fromarray(picture)
        whole.save(file, "PNG")
        return Image(file.getvalue())


class Audio(Media):
    """The sound of a 16-bit WAV file."""

    content_type = "audio/wav"

    @property
    def rate(self) -> int:
        """Number of samples per second."""
        return int(self._open().getframerate())

    @property
    def samples(self) -> Any:
        """The samples as numbers from -1 to 1, with a column per channel."""
        with self._open() as file:
            numbers = np.frombuffer(file.readframes(file.getnframes()), "<i2")
            return numbers.reshape(-1, file.getnchannels()).astype(np.float32) / _MAX_INT16

    def check(self) -> None:
        try:
            len(self.samples)
        except ValueError:  # a part of the last sample
            raise MismatchError("expected a sound that is whole") from None

    def _open(self) -> Any:
        try:
            file = wave.open(io.BytesIO(self.data))  # noqa: SIM115 - its caller uses it
        except (wave.Error, EOFError):
            raise MismatchError("expected a sound in a WAV file") from None
        if file.getsampwidth() != 2:
            raise MismatchError(f"expected a sound of 16 bits, got {8 * file.getsampwidth()}")
        return file

    @staticmethod
    def of(samples: Any, rate: int) -> Audio:
        """Make an Audio, as WAV, of samples from -1 to 1."""
        array, target = np.asarray(samples), io.BytesIO()
        with wave.open(target, "wb") as file:
            file.setnchannels(1 if array.ndim == 1 else array.shape[1])
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((np.clip(array, -1, 1) * _MAX_INT16).astype("<i2").tobytes())
        return Audio(target.getvalue())


def types_like(content_type: str) -> List[str]:
    """Return a content type, and the others of the same class, such as all image types."""
    major = content_type.partition("/")[0]
    return [content_type, *(each for each, _, _ in _MAGIC if each.startswith(major))]


class MediaKind(Kind):
    """Converts Image, Audio or File, or another library's class for the same content."""

    is_file = True
    has_names = True

    def __init__(self, media: Any, read: Any = None, write: Any = None) -> None:
        """Set up with Image, Audio or File.

        `read` and `write` convert it to and from another library's class, if that is the hint.
        """
        self.media, self._read, self._write = media, read, write
        self.takes_view = media is File
        self.expected = media.__name__
        self.schema = {"type": "string", "contentEncoding": "base64", CONTENT: media.content_type}

    def decode(self, array: Any, place: str = "", said: Mapping[str, Any] = _NOTHING) -> Any:
        """Convert an array to the value; `said` has the file's name and content type."""
        words = (str(said.get(f"{place}.{word}", "")) for word in WORDS)
        file = self.media(as_bytes(array.reshape(-1)[0]), *words)
        return file if self._read is None else self._read(file)

    def encode(self, value: Any) -> Any:
        try:
            file = value if self._write is None else self._write(value)
        except (AttributeError, OSError, TypeError):
            raise self.mismatch(value) from None
        if not isinstance(file, self.media):
            raise self.mismatch(value)
        return array_of_one(file.data)

    def from_json(self, document: Any) -> Any:
        return self.media(from_base64(document, self))

    def to_json(self, value: Any) -> Any:
        return f"data:{value.content_type};base64,{base64.b64encode(value.data).decode()}"


class Several(Kind):
    """Converts lists of images, sounds or files."""

    has_names = True

    def __init__(self, inner: MediaKind) -> None:
        self.inner = inner
        self.dims = [-1]
        self.expected = f"list of {inner.expected}"
        self.schema = {"type": "array", "items": inner.schema}

    def decode(self, array: Any, place: str = "", said: Mapping[str, Any] = _NOTHING) -> Any:
        rows = enumerate(array)
        return [self.inner.decode(array[n : n + 1], f"{place}.{n}", said) for n, _ in rows]

    def encode(self, value: Any) -> Any:
        return np.concatenate([np.empty(0, np.object_), *self._each(self.inner.encode, value)])

    def from_json(self, document: Any) -> Any:
        return self._each(self.inner.from_json, document)

    def to_json(self, value: Any) -> Any:
        return self._each(self.inner.to_json, value)

    def _each(self, convert: Callable[[Any], Any], values: Any) -> List[Any]:
        if not isinstance(values, (list, tuple)):
            raise self.mismatch(values)
        return convert_all(((n, (each,)) for n, each in enumerate(values)), convert)


def said_of(rows: Iterable[Tuple[str, str, str]]) -> Dict[str, str]:
    """Return request parameters with the name and content type of each file, by its place."""
    return {
        f"{place}.{word}": text
        for place, *texts in rows
        for word, text in zip(WORDS, texts)
        if text
    }


CLASSES = {each.content_type: each for each in (Audio, File, Image)}
