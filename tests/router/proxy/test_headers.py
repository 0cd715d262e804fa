"""What goes up, what comes down, and the decision in one line."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.decision import Decision
from router.proxy.headers import decision_header, downstream_headers, upstream_headers

CLIENT = [
    (b"host", b"bitgear"),
    (b"authorization", b"Bearer client-secret"),
    (b"x-api-key", b"client-secret"),
    (b"api-key", b"client-secret"),
    (b"cookie", b"client-secret"),
    (b"proxy-authorization", b"client-secret"),
    (b"x-forwarded-for", b"10.0.0.1"),
    (b"connection", b"keep-alive"),
    (b"content-length", b"5"),
    (b"content-type", b"text/plain"),
    (b"transfer-encoding", b"chunked"),
    (b"x-bitgear-scenario", b"batch"),
    (b"user-agent", b"test/1"),
    (b"traceparent", b"00-1-2-3"),
    (b"anthropic-version", b"2023-06-01"),
]


def test_the_clients_credentials_never_go_up_and_our_own_key_does() -> None:
    up = upstream_headers(CLIENT, "id-1", [(b"authorization", b"Bearer own")])
    assert not any(b"client-secret" in value for _, value in up)
    assert [v for n, v in up if n == b"authorization"] == [b"Bearer own"]


def test_only_what_a_replica_may_need_goes_up() -> None:
    up = dict(upstream_headers(CLIENT, "id-1", []))
    assert up == {
        b"user-agent": b"test/1",
        b"traceparent": b"00-1-2-3",
        b"anthropic-version": b"2023-06-01",
        b"content-type": b"application/json",
        b"x-request-id": b"id-1",
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([n for n, _ in CLIENT] + [b"x-y"]), st.binary(max_size=8)), max_size=10))
def test_framing_is_never_the_clients(headers: list[tuple[bytes, bytes]]) -> None:
    names = [n for n, _ in upstream_headers(headers, "id", [])]
    assert not {b"host", b"content-length", b"transfer-encoding", b"connection"} & set(names)
    assert names.count(b"content-type") == 1


def test_only_type_and_retry_after_come_down() -> None:
    up = [
        (b"content-type", b"a"),
        (b"retry-after", b"3"),
        (b"set-cookie", b"x"),
        (b"server", b"uvicorn"),
        (b"content-length", b"9"),
        (b"connection", b"close"),
        (b"date", b"d"),
        (b"x-request-id", b"theirs"),
    ]
    assert downstream_headers(up) == [(b"content-type", b"a"), (b"retry-after", b"3")]


def decision(variant: str | None) -> Decision:
    return Decision(variant, "within_limits", 0.125, 0.2, "realtime", "v7", ())


def test_the_decision_in_one_line() -> None:
    told = decision_header("g", decision("int4"), 1, simulated=False)
    assert told == (
        b"group=g; variant=int4; replica=1; risk=0.1250; threshold=0.2000; "
        b"scenario=realtime; policy=v7; reason=within_limits"
    )
    assert decision_header("g", decision("int4"), 1, simulated=True) == told + b"; simulated=true"
    assert b"variant=none; replica=none" in decision_header("g", decision(None), None, simulated=False)


def test_a_groups_name_of_any_script_stays_a_header() -> None:
    assert b"\n" not in decision_header("模型", decision("int4"), 0, simulated=False)
