"""The breaker as a state machine, against a model in plain words."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.state.breaker import Breaker


class BreakerMachine(RuleBasedStateMachine):
    """Failures in a row open it; probes that fail double the pause; a success starts anew."""

    @initialize(failures=st.integers(1, 5), open_s=st.floats(0.1, 10), most=st.floats(0.1, 100))
    def begin(self, failures: int, open_s: float, most: float) -> None:
        self.breaker = Breaker(failures, open_s, most)
        self.threshold, self.start, self.most = failures, open_s, max(open_s, most)
        self.now, self.in_a_row, self.pause = 0.0, 0, open_s

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def success(self) -> None:
        self.breaker.success()
        self.in_a_row, self.pause = 0, self.start

    @rule()
    def failure(self) -> None:
        was_open = self.breaker.state == "open"
        opened = self.breaker.failure(self.now)
        self.in_a_row += 1
        assert opened == (not was_open and self.in_a_row >= self.threshold)
        if opened:
            assert self.breaker.retry_at == self.now + self.pause

    @precondition(lambda self: self.breaker.state == "open")
    @rule()
    def half_open_probe_fails(self) -> None:
        self.breaker.probe_failed(self.now)
        self.pause = min(self.pause * 2, self.most)
        assert self.breaker.retry_at == self.now + self.pause

    @invariant()
    def it_is_open_exactly_after_so_many_failures_in_a_row(self) -> None:
        if hasattr(self, "breaker"):
            assert (self.breaker.state == "open") == (self.in_a_row >= self.threshold)


BreakerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBreaker = BreakerMachine.TestCase
