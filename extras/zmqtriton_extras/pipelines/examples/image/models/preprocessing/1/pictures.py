"""Decodes PNG files: 8 bits per channel, grey or colour, with or without transparency."""

import struct
import zlib

import numpy as np

SIZE = 224
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
#: The limit for what a file claims: cameras make smaller pictures.
MAX_PIXELS = 64 << 20
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}


def to_input(image):
    """Return (3, 224, 224) of a (height, width, 3): nearest pixels, mean 0, deviation 1."""
    height, width, _ = image.shape
    rows = np.arange(SIZE) * height // SIZE
    columns = np.arange(SIZE) * width // SIZE
    scaled = image[rows][:, columns].astype(np.float32) / 255
    return np.ascontiguousarray(((scaled - MEAN) / DEVIATION).transpose(2, 0, 1))


def decode(file):
    """Return 8-bit pixels (height, width, 3). Raises ValueError for a bad file."""
    if file[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("this is no PNG file")
    header, packed = None, []
    position = 8
    while position + 8 <= len(file):
        length, kind = struct.unpack_from(">I4s", file, position)
        data = file[position + 8 : position + 8 + length]
        position += length + 12
        if kind == b"IHDR" and length == 13:
            header = struct.unpack(">IIBBBBB", data)
        elif kind == b"IDAT":
            packed.append(data)
    if header is None:
        raise ValueError("this PNG file has no header")
    width, height, bits, colour, _, _, interlaced = header
    if bits != 8 or colour not in _CHANNELS or interlaced or not 0 < width * height <= MAX_PIXELS:
        raise ValueError("only plain PNG files with 8 bits for each channel are read here")
    channels = _CHANNELS[colour]
    image = _unfilter(_inflate(b"".join(packed), height * (width * channels + 1)), height, channels)
    if channels < 3:
        return np.repeat(image[..., :1], 3, axis=2)
    return image[..., :3]


def _inflate(packed, size):
    """Inflate the data, never to more than the header promises."""
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(packed, size)
    except zlib.error as error:
        raise ValueError(f"this PNG file is damaged: {error}") from None
    if len(data) != size:
        raise ValueError("this PNG file is not complete")
    return data


def _unfilter(data, height, channels):
    """Undo the filter of each row, which predicts bytes from those to the left and above."""
    rows = np.frombuffer(data, np.uint8).reshape(height, -1)
    pixels = rows[:, 1:].reshape(height, -1, channels)
    image = np.zeros_like(pixels)
    above = np.zeros_like(pixels[0])
    for number, kind in enumerate(rows[:, 0]):
        line = pixels[number]
        if kind == 0:
            image[number] = line
        elif kind == 1:
            image[number] = np.cumsum(line, axis=0, dtype=np.uint8)
        elif kind == 2:
            image[number] = line + above
        elif kind in (3, 4):
            image[number] = _predicted(line, above, kind)
        else:
            raise ValueError("this PNG file is damaged: unknown filter")
        above = image[number]
    return image


def _predicted(line, above, kind):
    """Undo the filters whose pixels depend on the one before."""
    done = np.zeros_like(line)
    left = corner = np.zeros(line.shape[1], np.int32)
    for position in range(len(line)):
        up = above[position].astype(np.int32)
        if kind == 3:
            guess = (left + up) // 2
        else:
            distances = np.abs([up - corner, left - corner, left + up - 2 * corner])
            guess = np.choose(distances.argmin(0), [left, up, corner])
        done[position] = line[position] + guess.astype(np.uint8)
        left, corner = done[position].astype(np.int32), up
    return done
