"""The place in a model, found in stacks as Python writes them."""

from __future__ import annotations

import pytest

from zmqtriton.diagnosis.facts.places import find_place

_LOOP = [
    '  File "/s/zmqtriton_stub/execution/executions.py", line 126 in begin',
    '  File "/s/zmqtriton_stub/loop.py", line 70 in run',
]
_CALL = ['  File "/s/zmqtriton_stub/model.py", line 106 in execute', *_LOOP]
_EXECUTE = '  File "/r/m/1/model.py", line 9 in execute'
_ASYNCIO = [
    '  File "/usr/lib/python3.11/asyncio/base_events.py", line 1919 in _run_once',
    '  File "/usr/lib/python3.11/asyncio/base_events.py", line 608 in run_forever',
]
_FLUSHER = [
    "Thread 0x00007f01 (most recent call first):",
    '  File "/usr/lib/python3.11/threading.py", line 320 in wait',
    '  File "/s/zmqtriton_stub/process.py", line 20 in flush',
    '  File "/usr/lib/python3.11/threading.py", line 982 in run',
]
_CURRENT = "Current thread 0x00007f02 (most recent call first):"


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([_EXECUTE, *_CALL], " (model.py, line 9, in execute)"),
        # its own line that has called a library, and a module of its own beside it
        (
            ['  File "/e/site-packages/requests/api.py", line 59 in get', _EXECUTE, *_CALL],
            " (model.py, line 9, in execute)",
        ),
        (
            ['  File "/r/m/1/store.py", line 3 in read', _EXECUTE, *_CALL],
            " (store.py, line 3, in read)",
        ),
        # it waits for another model, in our code
        (
            [
                '  File "/e/site-packages/zmq/sugar/poll.py", line 106 in poll',
                '  File "/s/zmqtriton_stub/broker/bls_client.py", line 88 in exec',
                _EXECUTE,
                *_CALL,
            ],
            " (model.py, line 9, in execute)",
        ),
        # while it is imported
        (
            [
                '  File "/r/m/1/model.py", line 4 in <module>',
                '  File "<frozen importlib._bootstrap_external>", line 940 in exec_module',
                '  File "/usr/lib/python3.11/importlib/__init__.py", line 126 in import_module',
                *_CALL,
            ],
            " (model.py, line 4)",
        ),
        # a coroutine that blocks, and one that waits for it knows not what
        ([_EXECUTE, *_ASYNCIO, *_CALL], " (model.py, line 9, in execute)"),
        (['  File "/usr/lib/python3.11/selectors.py", line 468 in select', *_ASYNCIO, *_CALL], ""),
        # it has nothing to do
        (['  File "/e/site-packages/zmq/sugar/poll.py", line 106 in poll', *_LOOP], ""),
        ([], ""),
    ],
)
def test_the_place_is_the_innermost_line_of_the_models_own_code(
    frames: list[str], place: str
) -> None:
    assert place == find_place([*_FLUSHER, "", _CURRENT, *frames])
    assert place == find_place([_CURRENT, *frames, *_FLUSHER])
