"""From a model's name and headers to a group, a pin, a scenario and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config.runtime import Runtime, RuntimeVariant
from router.keys.record import KeyRecord, digest
from router.keys.table import KeyTable
from router.proxy.errors import ApiError
from router.proxy.resolve import Directives, model_names, read_directives, request_id_of, resolve
from router.state import Fleet


def variant(group: str, name: str, precision: str) -> RuntimeVariant:
    return RuntimeVariant.model_validate(
        {"group": group, "variant": name, "precision": precision, "urls": ["http://127.0.0.1:9"], "served_model": "m"}
    )


@pytest.fixture
def fleet() -> Fleet:
    variants = (
        variant("g", "fp16", "fp16"),
        variant("g", "fast", "int8"),
        variant("g", "small", "int8"),
        variant("org/other", "int4", "int4"),
    )
    return Fleet(Runtime(variants=variants), {}, {})


NONE = Directives("id")


async def test_a_group_and_its_pins(fleet: Fleet) -> None:
    assert resolve("g", NONE, fleet).pin is None
    assert resolve("g@fast", NONE, fleet).pin == "fast"
    assert resolve("org/other@int4", NONE, fleet).group.name == "org/other"
    assert resolve("g@fast", NONE, fleet).asked == "g@fast"
    assert model_names(fleet) == ["g", "g@fp16", "g@fast", "g@small", "org/other", "org/other@int4"]


@pytest.mark.parametrize(
    "model", ["", "G", "g ", "g@", "g@int4", "g@fast@x", "@", "@fast", "other", "g\x00", "x" * 10_000]
)
async def test_an_unknown_model_is_404_and_names_the_known(fleet: Fleet, model: str) -> None:
    with pytest.raises(ApiError) as caught:
        resolve(model, NONE, fleet)
    assert (caught.value.status, caught.value.param, caught.value.code) == (404, "model", "model_not_found")
    assert "g@fast" in caught.value.message
    assert len(caught.value.message) < 1000


async def test_of_groups_that_a_key_may_not_use_nothing_is_told(fleet: Fleet) -> None:
    record = KeyRecord(sha256=digest(b"a"), groups=("org/other",))
    admitted = await KeyTable({"a": record}).admit([(b"authorization", b"Bearer a")], 0.0)
    assert admitted is not None
    assert resolve("org/other", NONE, fleet, admitted).pin is None
    for model, directives in (("g@nothing", NONE), ("g", Directives("id", precision="bf16"))):
        with pytest.raises(ApiError) as caught:
            resolve(model, directives, fleet, admitted)
        assert (caught.value.status, caught.value.code) == (403, "model_not_allowed")
        assert "fp16" not in caught.value.message
    with pytest.raises(ApiError) as unknown:
        resolve("x", NONE, fleet, admitted)
    assert (unknown.value.status, unknown.value.message.partition("Known: ")[2]) == (404, "org/other, org/other@int4.")


@pytest.mark.parametrize("model", [None, 5, True, ["g"], {"g": 1}, 1.5])
async def test_a_model_that_is_no_string_is_400(fleet: Fleet, model: object) -> None:
    with pytest.raises(ApiError) as caught:
        resolve(model, NONE, fleet)
    assert (caught.value.status, caught.value.param) == (400, "model")


async def test_a_precision_pins_the_first_variant_that_has_it(fleet: Fleet) -> None:
    assert resolve("g", Directives("id", precision="int8"), fleet).pin == "fast"
    assert resolve("g", Directives("id", precision="small"), fleet).pin == "small"
    assert resolve("g@fast", Directives("id", precision="int8"), fleet).pin == "fast"
    for model, precision in (("g@fp16", "int8"), ("g", "int4"), ("g", "")):
        with pytest.raises(ApiError) as caught:
            resolve(model, Directives("id", precision=precision), fleet)
        assert (caught.value.status, caught.value.param) == (400, "x-bitgear-precision")


async def test_the_scenario_is_the_headers_else_the_groups(fleet: Fleet) -> None:
    assert resolve("g", NONE, fleet).scenario.name == "realtime"
    assert resolve("g", Directives("id", scenario="edge"), fleet).scenario.name == "edge"


async def test_headers_are_read(fleet: Fleet) -> None:
    headers = [
        (b"x-bitgear-scenario", b" batch "),
        (b"x-bitgear-precision", b"int8"),
        (b"x-bitgear-max-risk", b"0.25"),
        (b"x-bitgear-unknown", b"?"),
    ]
    assert read_directives(headers, "id", fleet.scenarios) == Directives("id", "batch", "int8", 0.25)


@pytest.mark.parametrize("value", [b"nan", b"inf", b"-0.1", b"1.1", b"", b"x", b"\xff", b"1" * 9999])
async def test_a_bound_on_risk_is_a_share(fleet: Fleet, value: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read_directives([(b"x-bitgear-max-risk", value)], "id", fleet.scenarios)
    assert (caught.value.status, caught.value.param) == (400, "x-bitgear-max-risk")
    assert len(caught.value.message) < 200


async def test_an_unknown_scenario_is_400(fleet: Fleet) -> None:
    with pytest.raises(ApiError) as caught:
        read_directives([(b"x-bitgear-scenario", b"fast")], "id", fleet.scenarios)
    assert "realtime" in caught.value.message


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_a_request_id_is_the_clients_where_it_is_plain_else_a_new_one(value: bytes) -> None:
    found = request_id_of([(b"x-request-id", value)])
    assert found.isascii()
    assert found.isprintable()
    assert 1 <= len(found) <= 128
    if value.isalnum() and len(value) <= 128:
        assert found == value.decode()


def test_new_ids_differ() -> None:
    assert len({request_id_of([]) for _ in range(100)}) == 100
