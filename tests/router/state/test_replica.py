"""A replica's load from its own figures and ours, and when it may be used."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.wire import VllmMetrics
from router.config.schema import BreakerConfig
from router.state import Replica


def replica(failures: int = 3) -> Replica:
    return Replica(0, "http://127.0.0.1:9", [], BreakerConfig(failures=failures, open_s=2, open_max_s=60))


def seen(running: float, waiting: float, inflight_then: int, inflight_now: int) -> Replica:
    r = replica()
    r.inflight = inflight_then
    # Twice, so that as many run as ever did.
    for at in (99.0, 100.0):
        r.read(at, VllmMetrics(running=running, waiting=waiting))
    r.inflight = inflight_now
    return r


def test_without_figures_its_own_requests_count() -> None:
    r = replica()
    r.inflight = 4
    assert r.load(0.0, 10.0) == (4.0, 0.0)


def test_old_figures_do_not_count() -> None:
    assert seen(50, 9, 2, 3).load(110.1, 10.0) == (3.0, 0.0)


def test_figures_are_moved_on_by_what_was_sent_since() -> None:
    assert seen(10, 0, 4, 7).load(101.0, 10.0) == (13.0, 0.0)
    assert seen(10, 0, 7, 4).load(101.0, 10.0) == (7.0, 0.0)


def test_what_comes_to_a_full_server_waits() -> None:
    assert seen(8, 2, 10, 13).load(101.0, 10.0) == (8.0, 5.0)
    assert seen(8, 2, 10, 9).load(101.0, 10.0) == (8.0, 1.0)
    assert seen(8, 2, 10, 5).load(101.0, 10.0) == (5.0, 0.0)


def test_while_places_are_free_nobody_waits_for_one() -> None:
    r = replica()
    for at, running in enumerate((40.0, 9.0)):
        r.read(float(at), VllmMetrics(running=running, waiting=3.0))
        assert r.load(float(at), 10.0) == (running + 3.0, 0.0)
    r.inflight = 2
    assert r.load(2.0, 10.0) == (14.0, 0.0)
    # As many run as ever did, and more wait: there are no more places.
    r.read(3.0, VllmMetrics(running=40.0, waiting=3.0))
    assert r.load(3.0, 10.0) == (40.0, 3.0)
    # Two places are free, for two of the eight that wait.
    r.read(4.0, VllmMetrics(running=38.0, waiting=8.0))
    assert r.load(4.0, 10.0) == (40.0, 6.0)


def test_a_full_cache_leaves_no_place() -> None:
    r = replica()
    r.read(0.0, VllmMetrics(running=40.0))
    r.read(1.0, VllmMetrics(running=9.0, waiting=3.0, kv_cache_usage=0.97))
    assert r.load(1.0, 10.0) == (9.0, 3.0)


def test_a_server_that_began_anew_has_to_show_its_places_again() -> None:
    r = replica()
    for at in range(2):
        r.read(float(at), VllmMetrics(running=40.0, waiting=3.0, prompt_tokens=1000.0))
    assert r.load(1.0, 10.0) == (40.0, 3.0)
    r.read(2.0, VllmMetrics(running=8.0, waiting=3.0, prompt_tokens=50.0))
    assert r.load(2.0, 10.0) == (11.0, 0.0)
    r.read(3.0, VllmMetrics(running=8.0, waiting=3.0, prompt_tokens=60.0))
    assert r.load(3.0, 10.0) == (8.0, 3.0)


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 1000), st.floats(0, 1000), st.integers(0, 500), st.integers(0, 500), st.floats(0, 30))
def test_load_is_never_negative_and_never_less_than_what_runs_here_and_nowhere_else(
    running: float, waiting: float, then: int, now: int, age: float
) -> None:
    load = seen(running, waiting, then, now).load(100.0 + age, 10.0)
    assert min(load) >= 0
    if waiting == 0 or age > 10:
        assert load[0] >= now


def test_failures_in_a_row_take_it_out_and_wake_the_monitor() -> None:
    r = replica()
    r.mark_ready(0.0)
    assert [r.failure(1.0, "x") for _ in range(2)] == [False, False]
    r.success()
    assert [r.failure(1.0, "x") for _ in range(3)] == [False, False, True]
    assert not r.available(1.0)
    assert r.changed.is_set()
    assert r.last_error == "x"


def test_a_late_answer_does_not_close_an_open_breaker() -> None:
    r = replica(failures=1)
    r.mark_ready(0.0)
    r.failure(1.0, "x")
    r.success()
    assert r.breaker.state == "open"
    r.mark_ready(5.0)
    assert r.breaker.state == "closed"
    assert r.available(5.0)


def test_an_overloaded_replica_is_left_alone_for_as_long_as_it_asked() -> None:
    r = replica()
    r.mark_ready(0.0)
    r.cool_down(10.0, 7.0)
    assert not r.available(16.9)
    assert r.available(17.0)
    r.cool_down(20.0, None)
    assert r.available(21.0)
    r.cool_down(30.0, 1e9)
    assert r.available(331.0)
    r.cool_down(400.0, -5.0)
    assert r.available(400.0)


def test_a_shorter_pause_does_not_cut_a_longer_one() -> None:
    r = replica()
    r.mark_ready(0.0)
    r.cool_down(0.0, 30.0)
    r.cool_down(1.0, 1.0)
    assert not r.available(29.0)


def test_its_url_is_shown_without_the_password() -> None:
    shown = Replica(0, "http://user:secret@127.0.0.1:9", [], BreakerConfig()).url
    assert "secret" not in shown
    assert "127.0.0.1:9" in shown
