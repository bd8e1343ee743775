"""`python -m tests.faults.standstills --rounds=5 --without=messages`: see rounds.py."""

from __future__ import annotations

import argparse
import sys

from tests.faults.standstills import rounds
from tests.faults.standstills.hostile import KINDS
from tests.support import leaks


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=rounds.COUNT)
    parser.add_argument("--without", choices=sorted(KINDS), default="")
    arguments = parser.parse_args()
    mark = leaks.mark_session()
    before = leaks.take_snapshot(mark)
    broken = rounds.run(arguments.rounds, arguments.without)
    left = leaks.find_leaks(before, mark)
    if left:
        broken.append(f"left behind: {left}")
    print("\n".join(broken) or "every promise was kept", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
