"""Play `speech.wav` to the server as a microphone would, and print who speaks when."""

import asyncio
import json
import struct
import wave
from pathlib import Path

import numpy as np
from websockets.asyncio.client import connect

URL = "ws://localhost:8000/v2/models/listen/stream"


async def listen(url: str) -> list[float]:
    """Return the probability of speech in each chunk of the recording."""
    with wave.open(str(Path(__file__).parent / "speech.wav")) as file:
        audio = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    chunks = audio[: len(audio) // 512 * 512].reshape(-1, 1, 512)
    heard = []
    async with connect(url) as microphone:
        for number, chunk in enumerate(chunks):
            await microphone.send(message(chunk, number == 0, number == len(chunks) - 1))
            heard.append(json.loads(await microphone.recv())["outputs"][0]["data"][0])
    return heard


def message(chunk: np.ndarray, is_first: bool, is_last: bool) -> bytes:
    parameters = {"sequence_id": 1, "sequence_start": is_first, "sequence_end": is_last}
    sizes = {"binary_data_size": chunk.nbytes}
    audio = {"name": "AUDIO", "datatype": "INT16", "shape": [1, 512], "parameters": sizes}
    head = json.dumps({"inputs": [audio], "parameters": parameters}).encode()
    return struct.pack("<I", len(head)) + head + chunk.tobytes()


if __name__ == "__main__":
    for number, speech in enumerate(asyncio.run(listen(URL))):
        if number % 8 == 0:
            print(f"{number * 0.032:5.2f} s  {'#' * round(speech * 40)}")
