"""The configurations whose batches are compared with real Triton's, and what each is given.

batches.py plays them; their names are models, and the keys of what is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.arrivals import (
    Answered,
    Ask,
    Begun,
    Configuration,
    Go,
    Pause,
    Send,
    asks,
    batching,
    behind,
    ensemble,
    group,
    idle,
    inputs,
    late,
    parameter,
    sequences,
    turns,
)

TEN = asks("a b c d e f g h i j")
MIXED = asks("a*3 b*3 c*3 d*2 e*5 f*8 g h*4 i*4 j")
SHAPES = [
    Ask(name, columns=columns) for name, columns in zip("abcdef", (1, 1, 2, 2, 1, 2), strict=True)
]
PRIORITIES = asks("a:3 b:2 c:1 d:3 e f:1 g:2 h:3 i:1 j")
LEVELS = "priority_levels: 3 default_priority_level: 2 "
#: Long enough for what comes together, also where others keep the machine busy.
DELAY = "max_queue_delay_microseconds: 700000 "
#: Longer than any run.
LONG = "max_queue_delay_microseconds: 60000000 "
#: In turn, as clients of sequences send them.
FOUR = turns("(1a (2a (3a (4a 1b 2b 3b 4b 1c) 2c) 3c) 4c)")

DYNAMIC: Sequence[Configuration] = [
    Configuration("dynamic", batching(), behind(TEN)),
    Configuration("largest_4", batching(largest=4), behind(TEN)),
    Configuration("largest_1", batching(largest=1), behind(TEN[:4])),
    Configuration("preferred_4", batching("preferred_batch_size: [ 4 ]"), behind(TEN)),
    Configuration("preferred_2_6", batching("preferred_batch_size: [ 2, 6 ]"), behind(TEN)),
    Configuration(
        "preferred_beyond_what_waits", batching("preferred_batch_size: [ 6 ]"), behind(TEN[:4])
    ),
    Configuration(
        "preferred_and_delay", batching(f"preferred_batch_size: [ 4 ] {DELAY}"), late(TEN)
    ),
    Configuration(
        "preferred_within_the_delay",
        batching("preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 2500000"),
        behind(TEN[:8]),
    ),
    Configuration(
        "preferred_and_delay_idle", batching(f"preferred_batch_size: [ 4 ] {DELAY}"), idle(TEN[:6])
    ),
    Configuration("delay_idle", batching(DELAY), idle(TEN[:3])),
    Configuration("delay_until_full", batching(LONG, largest=4), idle(TEN[:8])),
    Configuration("rows", batching(), behind(MIXED)),
    Configuration("rows_preferred", batching("preferred_batch_size: [ 4, 6 ]"), behind(MIXED)),
    Configuration(
        "rows_beyond_preferred",
        batching(f"preferred_batch_size: [ 2, 6 ] {DELAY}"),
        idle(asks("a*3 b*4")),
    ),
    Configuration(
        "rows_beyond_preferred_without_a_delay",
        batching("preferred_batch_size: [ 2, 6 ]"),
        behind(asks("a*4 b*3")),
    ),
    Configuration(
        "rows_preferred_and_delay",
        batching(f"preferred_batch_size: [ 4 ] {DELAY}"),
        late(asks("a*3 b*3 c d*4 e*2 f")),
    ),
    Configuration("no_dynamic_batching", f"max_batch_size: 8\n{inputs()}{group()}", behind(MIXED)),
    Configuration("no_batches", f"max_batch_size: 0\n{inputs()}{group()}", behind(TEN[:4])),
    Configuration("two_instances", batching(largest=4, count=2), [
        Send(asks("hold1")), Begun(1), Send(asks("hold2")), Begun(2),
        Send(TEN), Go("hold1"), Answered(11), Go("hold2"),
    ], has_streams=True),
    Configuration(
        "preserve_ordering",
        batching(f"preserve_ordering: true {LONG}", largest=2, count=2),
        [Send(asks("hold*2")), Begun(1), Send(TEN[:6]), Begun(4), Pause(0.3), Go()],
        has_streams=True,
    ),
    Configuration(
        "any_ordering",
        batching(LONG, largest=2, count=2),
        [Send(asks("hold*2")), Begun(1), Send(TEN[:6]), Begun(4), Answered(6), Go()],
        has_streams=True,
    ),
    Configuration(
        "shapes",
        f"max_batch_size: 8\n{inputs('-1')}dynamic_batching {{ }}\n{group()}",
        behind(SHAPES),
    ),
    Configuration(
        "ragged",
        f"max_batch_size: 8\n{inputs('-1', 'allow_ragged_batch: true')}"
        f"dynamic_batching {{ }}\n{group()}",
        behind(SHAPES),
    ),
    Configuration("optional_input", batching(), behind(asks("a b c+ d+ e f+ g+"))),
    Configuration(
        "decoupled",
        batching(largest=4, more="model_transaction_policy { decoupled: true }\n"),
        behind(TEN),
    ),
]  # fmt: skip

POLICIES: Sequence[Configuration] = [
    Configuration("priorities", batching(LEVELS), behind(PRIORITIES)),
    Configuration("priorities_largest_2", batching(LEVELS, largest=2), behind(PRIORITIES)),
    Configuration(
        "priorities_preferred",
        batching(LEVELS + "preferred_batch_size: [ 2, 4 ]"),
        behind(PRIORITIES),
    ),
    Configuration(
        "priorities_preferred_and_delay",
        batching(LEVELS + f"preferred_batch_size: [ 4 ] {DELAY}"),
        late(PRIORITIES),
    ),
    Configuration(
        "priorities_of_rows",
        batching(LEVELS),
        behind(asks("a*4:3 b*4:2 c*4:1 d*4:3 e*2:1 f*3:2")),
    ),
    Configuration(
        "queue_of_3",
        batching("default_queue_policy { max_queue_size: 3 }", largest=2),
        behind(TEN[:6]),
    ),
    Configuration(
        "levels_of_different_sizes",
        batching(
            LEVELS + "default_queue_policy { max_queue_size: 2 } "
            "priority_queue_policy { key: 1 value { max_queue_size: 1 } } "
            "priority_queue_policy { key: 3 value { max_queue_size: 4 } }",
            largest=4,
        ),
        behind(asks("a:3 b:1 c:1 d:2 e:3 f:2 g:2 h:3")),
    ),
    Configuration(
        "late_are_refused",
        batching(
            LEVELS + "priority_queue_policy { key: 1 value { timeout_action: REJECT "
            "default_timeout_microseconds: 100000 } }",
            largest=4,
        ),
        [Send(asks("hold")), Begun(1), Send(PRIORITIES), Pause(0.3), Go()],
    ),
    Configuration(
        "late_go_last",
        batching(
            LEVELS + "priority_queue_policy { key: 1 value { timeout_action: DELAY "
            "default_timeout_microseconds: 100000 } }",
            largest=3,
        ),
        [Send(asks("hold")), Begun(1), Send(PRIORITIES), Pause(0.3), Go()],
    ),
]  # fmt: skip

SEQUENCES: Sequence[Configuration] = [
    Configuration(
        "direct",
        sequences("direct { }"),
        [Send(turns("(hold9h")), Begun(1), Send(FOUR[:3] + FOUR[4:7]), Go("hold9h")],
    ),
    Configuration(
        "direct_in_turn",
        sequences("direct { }"),
        [Send(FOUR[:1]), Answered(1), Send(FOUR[1:2]), Answered(2), Send(FOUR[4:5]), Answered(3),
         Send(FOUR[5:6])],
    ),
    Configuration(
        "direct_with_backlog",
        sequences("direct { }", largest=2),
        [Send(turns("(hold9h")), Begun(1), Send(FOUR), Send(turns("9z)")), Go("hold9h")],
    ),
    Configuration(
        "direct_that_waits_for_slots",
        sequences(
            "direct { minimum_slot_utilization: 1.0 max_queue_delay_microseconds: 700000 }",
            largest=4,
        ),
        [Send(FOUR[:3])],
    ),
    Configuration(
        "direct_of_no_batches",
        sequences("direct { }", largest=0),
        [Send(turns("(hold9h")), Begun(1), Send([*turns("9b 9c)"), *FOUR[:1], *FOUR[4:5]]),
         Go("hold9h")],
    ),
    Configuration(
        "oldest",
        sequences("oldest { max_candidate_sequences: 5 }"),
        [Send(turns("(hold9h")), Begun(1), Send(FOUR), Go("hold9h")],
    ),
    Configuration(
        "oldest_preferred",
        sequences(
            "oldest { max_candidate_sequences: 5 preferred_batch_size: [ 2 ] "
            "max_queue_delay_microseconds: 700000 }"
        ),
        [Send(turns("(hold9h")), Begun(1), Send(FOUR[:3]), Pause(1.2), Go("hold9h")],
    ),
    Configuration(
        "oldest_with_backlog",
        sequences("oldest { max_candidate_sequences: 3 }"),
        [Send(turns("(hold9h")), Begun(1), Send(FOUR), Go("hold9h")],
    ),
    Configuration(
        "iterative",
        f"max_batch_size: 4\n{inputs()}"
        "sequence_batching { iterative_sequence: true max_sequence_idle_microseconds: 60000000 }\n"
        f"model_transaction_policy {{ decoupled: true }}\n{group()}{parameter('TIMES', '1')}",
        behind(TEN[:3]),
    ),
]  # fmt: skip

COMPOSED: Sequence[Configuration] = [
    Configuration(
        "ensemble",
        ensemble(["ensemble_only"]),
        [
            Send(asks("hold", model="ensemble_only")), Begun(1, "ensemble_only"),
            Send(MIXED), Go("hold", "ensemble_only"),
        ],
        [("ensemble_only", batching())],
    ),
    Configuration(
        "ensemble_of_two",
        ensemble(["ensemble_first", "ensemble_second"], largest=4),
        [
            Send(asks("hold1", model="ensemble_first")), Begun(1, "ensemble_first"),
            Send(asks("hold2", model="ensemble_second")), Begun(1, "ensemble_second"),
            Send(TEN), Go("hold1", "ensemble_first"), Begun(4, "ensemble_first"), Pause(0.5),
            Go("hold2", "ensemble_second"),
        ],
        [("ensemble_first", batching(largest=4)), ("ensemble_second", batching())],
    ),
    Configuration(
        "asked_by_a_model",
        f"max_batch_size: 8\n{inputs()}dynamic_batching {{ }}\n{group()}"
        + parameter("CALLS", "asked"),
        [
            Send(asks("hold", model="asked")), Begun(1, "asked"),
            Send(TEN[:1]), Begun(1), Pause(1), Go("hold", "asked"),
        ],
        [("asked", batching(largest=4))],
    ),
]  # fmt: skip

CONFIGURATIONS = [*DYNAMIC, *POLICIES, *SEQUENCES, *COMPOSED]
