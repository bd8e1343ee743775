"""Which of a process's stacks are an instance's."""

from __future__ import annotations

from zmqtriton.diagnosis.facts.asking import lines_of_instance

FIRST = ["Thread 0x00007f01 (most recent call first):", '  File "/m/1/model.py", line 3 in execute']
SECOND = ["Current thread 0x00007f02 (most recent call first):", '  File "/w.py", line 1 in wait']
OTHER = ["Thread 0x00007f03 [pool] (most recent call first):", '  File "/p.py", line 9 in run']
NAMES = ["Thread 0x00007f01 is instance m_0_0", "Thread 0x00007f02 is instance m_0_1"]


def test_a_process_of_one_instance_has_all_of_them() -> None:
    lines = [*FIRST, *SECOND]

    assert lines == lines_of_instance(lines, "m_0_0")


def test_of_several_instances_each_has_its_own_thread_and_those_of_none() -> None:
    lines = [*FIRST, *OTHER, *SECOND, *NAMES]

    assert [*FIRST, *OTHER] == lines_of_instance(lines, "m_0_0")
    assert [*OTHER, *SECOND] == lines_of_instance(lines, "m_0_1")


def test_the_thread_that_writes_the_stacks_is_left_out() -> None:
    writer = [
        "Current thread 0x00007f04 (most recent call first):",
        '  File "/lib/signal.py", line 82 in sigwait',
        '  File "/s/zmqtriton_stub/process.py", line 99 in await_signals',
    ]

    assert [*FIRST, *OTHER] == lines_of_instance([*writer, *FIRST, *OTHER], "m_0_0")
    assert FIRST == lines_of_instance([*FIRST, *writer], "m_0_0")


def test_the_stack_of_a_process_that_can_show_one_thread_alone_is_kept() -> None:
    lines = ["Stack (most recent call first):", '  File "/m/1/model.py", line 3 in execute']

    assert lines == lines_of_instance(lines, "m_0_0")
