"""Record `speech.wav`: two sentences, said by eSpeak, which a package brings."""

import ctypes
import wave
from pathlib import Path

import espeakng_loader
import numpy as np

SAMPLES, NO_OUTPUT_DEVICE, UTF8 = 500, 2, 1
SENTENCES = "This is the first sentence of a recording.", "After a while there is another one."
said: list[int] = []


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
def keep(samples, count, events):
    if samples:
        said.extend(samples[:count])
    return 0


espeak = ctypes.CDLL(espeakng_loader.get_library_path())
voices = espeakng_loader.get_data_path().encode()
rate = espeak.espeak_Initialize(NO_OUTPUT_DEVICE, SAMPLES, voices, 0)
espeak.espeak_SetSynthCallback(keep)
espeak.espeak_SetVoiceByName(b"en")
recording = [np.zeros(16000)]
for text in SENTENCES:
    said.clear()
    data = text.encode() + b"\0"
    espeak.espeak_Synth(data, len(data), 0, 0, 0, UTF8, None, None)
    espeak.espeak_Synchronize()
    at_16_khz = np.arange(0, len(said), rate / 16000)
    recording += [np.interp(at_16_khz, np.arange(len(said)), said), np.zeros(16000)]
samples = np.concatenate(recording)
samples += np.random.default_rng(0).normal(0, 20, len(samples))
with wave.open(str(Path(__file__).parent / "speech.wav"), "wb") as file:
    file.setnchannels(1)
    file.setsampwidth(2)
    file.setframerate(16000)
    file.writeframes(samples.clip(-32768, 32767).astype("<i2").tobytes())
print(f"speech.wav has {len(samples) / 16000:.1f} seconds")
