"""Pictures, sounds and files as arguments and answers: each has the bytes of a file."""

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
    CONTENT,
    Kind,
    MismatchError,
    array_of_one,
    as_bytes,
    convert_all,
    from_base64,
)

#: Parameters of a request about a file: "image.filename".
WORDS = ("filename", "content_type")
_NOTHING: Dict[str, Any] = {}
_MAX_INT16 = 32767
#: Maximum bytes of a name, for file systems.
_MAX_NAME = 255
#: The content types that files show by their first bytes, at the offset of these.
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
    """The contents of a file, as it was sent."""

    content_type = "application/octet-stream"

    def __init__(self, data: Any, name: str = "", content_type: str = "") -> None:
        """Set up with bytes, or a view of shared memory, and what its client says of them."""
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
        """The name of the client's file, without directories; "" without one."""
        name = self._name.replace("\\", "/").rpartition("/")[2].replace("\0", "")
        name = name.encode("utf-8", "ignore")[-_MAX_NAME:].decode("utf-8", "ignore")
        return "" if name in (".", "..") else name

    @property
    def suffix(self) -> str:
        """The suffix of the name, or of a content type that the client has told: ".png"."""
        if self.name or self.content_type == Media.content_type:
            return os.path.splitext(self.name)[1]
        return mimetypes.guess_extension(self.content_type.partition(";")[0]) or ""

    def check(self) -> None:
        """Read all of it. Raises MismatchError if it is damaged."""


class File(Media):
    """Any file; its `path` exists as long as this does, and then has the only copy of its data."""

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
    """A picture; `np.asarray(image)` and `image.pil` need Pillow."""

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
        """Return the picture that an array or an image of Pillow is, as PNG."""
        pillow, file = importlib.import_module("PIL.Image"), io.BytesIO()
        whole = picture if hasattr(picture, "save") else pillow.fromarray(picture)
        whole.save(file, "PNG")
        return Image(file.getvalue())


class Audio(Media):
    """A sound in a WAV file of 16 bits."""

    content_type = "audio/wav"

    @property
    def rate(self) -> int:
        """Samples in a second."""
        return int(self._open().getframerate())

    @property
    def samples(self) -> Any:
        """The samples from -1 to 1, a column for each channel."""
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
        """Return the sound of samples from -1 to 1."""
        array, target = np.asarray(samples), io.BytesIO()
        with wave.open(target, "wb") as file:
            file.setnchannels(1 if array.ndim == 1 else array.shape[1])
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((np.clip(array, -1, 1) * _MAX_INT16).astype("<i2").tobytes())
        return Audio(target.getvalue())


def types_like(content_type: str) -> List[str]:
    """Return the content types that files of a class with this one may have."""
    major = content_type.partition("/")[0]
    return [content_type, *(each for each, _, _ in _MAGIC if each.startswith(major))]


class MediaKind(Kind):
    """Values of one of these classes."""

    is_file = True
    has_names = True

    def __init__(self, media: Any, read: Any = None, write: Any = None) -> None:
        """Set up; `read` and `write` are for values of another library's class."""
        self.media, self._read, self._write = media, read, write
        self.takes_view = media is File
        self.expected = media.__name__
        self.schema = {"type": "string", "contentEncoding": "base64", CONTENT: media.content_type}

    def decode(self, array: Any, place: str = "", said: Mapping[str, Any] = _NOTHING) -> Any:
        """Return the value of an array, with what a request's parameters say of the file."""
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
    """Lists of pictures, sounds or files."""

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
    """Return the parameters of a request with the names and content types of files, by place."""
    return {
        f"{place}.{word}": text
        for place, *texts in rows
        for word, text in zip(WORDS, texts)
        if text
    }


CLASSES = {each.content_type: each for each in (Audio, File, Image)}
