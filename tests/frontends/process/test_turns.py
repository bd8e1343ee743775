from __future__ import annotations

from collections.abc import Callable

from zmqtriton_frontends.process.turns import BYTE_S, LITTLE_S, READ_S, ROUND_S, Cost, GoOn, Turns


class Loop:
    """A loop whose time passes only where somebody works."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[Callable[[], None]] = []
        #: The part of it in which the kernel had others work.
        self.stolen_s = 0.0
        self.turns = Turns(self._due.append, lambda: self.now, lambda: self.now - self.stolen_s)
        #: Who was read, in this order.
        self.read: list[str] = []
        self.rounds: list[float] = []

    def work(self, name: str, left: list[float]) -> GoOn:
        """Work of a millisecond after the other, until all is done."""

        def go_on(until: float) -> bool:
            self.read.append(name)
            while left[0] > 0:
                left[0] -= 0.001
                self.now += 0.001
                if self.now >= until:
                    break
            return left[0] > 0

        return go_on

    def come(self, name: str, seconds: float, cost: Cost) -> None:
        """Something comes that takes so long to read."""
        begun, left = self.now, [seconds]
        until = self.turns.end_of_turn(cost, begun)
        go_on = self.work(name, left)
        if until:
            has_more = go_on(until)
            self.turns.spend(cost, begun)
            if not has_more:
                return
        self.turns.wait(cost, go_on)

    def go_round(self) -> bool:
        due = list(self._due)
        self._due.clear()
        begun = self.now
        for callback in due:
            callback()
        self.rounds.append(self.now - begun)
        return bool(due)


def test_what_costs_little_is_read_before_the_rest_of_what_costs_much() -> None:
    loop = Loop()

    loop.come("much", 0.1, Cost("a"))
    loop.come("little", 0.001, Cost("b"))
    while loop.go_round():
        pass

    assert ["much", "little"] == loop.read[:2]
    assert {"much"} == set(loop.read[2:])
    assert max(loop.rounds) < 2 * ROUND_S


def test_all_that_cost_much_have_one_turn_in_a_round() -> None:
    loop = Loop()
    for number in range(10):
        loop.come(f"{number}", 0.05, Cost("a"))
    for _ in range(20):
        loop.go_round()  # until all have cost much

    begun = len(loop.read)
    for _ in range(30):
        loop.go_round()

    assert max(loop.rounds[1:]) < 2 * ROUND_S
    shares = [loop.read[begun:].count(f"{number}") for number in range(10)]
    assert max(shares) <= min(shares) + 2  # the first had one before the round


def test_addresses_take_turns() -> None:
    loop = Loop()
    for number in range(20):
        loop.come(f"one of many {number}", 1.0, Cost("many"))
    loop.come("alone", 1.0, Cost("few"))

    for _ in range(40):
        loop.go_round()

    assert loop.read.count("alone") >= 10


def test_who_is_alone_never_waits() -> None:
    loop, cost = Loop(), Cost("a")

    for _ in range(100):
        loop.come("alone", 0.004, cost)
        loop.now += 0.004  # what the loop does besides

    assert not loop.turns.is_crowded
    assert 100 == len(loop.read)


def test_who_has_cost_much_costs_little_again_after_a_while() -> None:
    loop, cost = Loop(), Cost("a")
    loop.come("much", 0.5, cost)
    while loop.go_round():
        pass
    assert cost.recent_s(loop.now) > LITTLE_S

    loop.now += 1.0

    assert 0 == cost.recent_s(loop.now)


def test_many_that_each_cost_little_do_not_fill_a_round() -> None:
    loop = Loop()
    for number in range(100):
        loop.come(f"{number}", 0.002, Cost(f"{number}"))
    at_once = len(loop.read)

    while loop.go_round():
        pass

    assert at_once * 0.002 < 2 * ROUND_S
    assert {f"{number}" for number in range(100)} == set(loop.read)
    assert max(loop.rounds) < 2 * ROUND_S


def test_who_has_been_modest_comes_before_those_of_whom_nothing_is_known() -> None:
    loop = Loop()
    modest = Cost("b", loop.now - 1.0)
    for number in range(200):
        loop.come(f"new {number}", 0.004, Cost(f"{number}", loop.now))
    loop.come("modest", 0.0004, modest)

    loop.go_round()

    assert "modest" in loop.read
    assert max(loop.rounds) < 2 * ROUND_S


def test_those_of_whom_nothing_is_known_come_though_modest_ones_never_end() -> None:
    loop = Loop()
    loop.come("much", 0.1, Cost("a"))
    loop.come("new", 0.001, Cost("b", loop.now))
    rounds = 0

    while "new" not in loop.read:
        for number in range(10):
            loop.come(f"modest {number}", 0.001, Cost("c", loop.now - 1.0))
        loop.go_round()
        rounds += 1

    assert rounds * ROUND_S < 1.0


def test_no_client_pays_for_the_time_of_other_processes() -> None:
    loop, read, waited = Loop(), Cost("a"), Cost("a")

    begun = loop.now
    loop.now += 0.03
    loop.turns.spend(read, begun, READ_S + 200 * BYTE_S)

    def go_on(_until: float) -> bool:
        loop.now += 0.03
        loop.stolen_s += 0.0295
        return False

    loop.turns.wait(waited, go_on)
    loop.go_round()

    assert max(cost.recent_s(loop.now) for cost in (read, waited)) < LITTLE_S


def test_of_those_that_cost_much_the_cheapest_is_read_first() -> None:
    loop = Loop()
    for number in range(50):
        loop.come(f"{number}", 0.2, Cost("a"))
    for _ in range(50):
        loop.go_round()  # all have cost much
    modest = Cost("a", loop.now)
    modest.seconds = 1.5 * LITTLE_S

    begun = len(loop.read)
    loop.turns.wait(modest, loop.work("modest", [0.001]))
    for _ in range(5):
        loop.go_round()

    assert "modest" in loop.read[begun:]
