"""The runtime file: written privately, read back equal, errors name file and field."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from router.config.runtime import Runtime, RuntimeFileError, RuntimeVariant
from router.config.schema import Config


def example() -> Runtime:
    config = Config.model_validate(
        {
            "server": {"port": 9000},
            "groups": {
                "g": {"backends": [{"precision": "int4", "urls": ["http://127.0.0.1:1"], "api_key_env": "KEY"}]}
            },
        }
    )
    variants = (
        RuntimeVariant(
            group="g",
            variant="int4",
            precision="int4",
            urls=("http://127.0.0.1:1",),
            served_model="g",
            api_key_env="KEY",
        ),
        RuntimeVariant(
            group="h", variant="x", precision="fp16", urls=("http://127.0.0.1:2",), served_model="h", simulated=True
        ),
        RuntimeVariant(
            group="g",
            variant="hosted",
            precision="fp16",
            urls=("http://127.0.0.1:3",),
            served_model="g",
            last_resort=True,
        ),
    )
    return Runtime(config=config, variants=variants, redis_url="unix:///run/valkey.sock")


def test_round_trip_through_json() -> None:
    assert Runtime.from_json(example().to_json()) == example()
    assert Runtime.from_json(Runtime().to_json()) == Runtime()


def test_file_is_private_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "runtime.json"
    example().write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Runtime.read(path) == example()
    assert [p.name for p in tmp_path.iterdir()] == ["runtime.json"]


def test_groups_keep_the_configured_order() -> None:
    groups = example().groups()
    assert list(groups) == ["g", "h"]
    assert [v.variant for v in groups["g"]] == ["int4", "hosted"]
    assert groups["g"][0].pinned == "g@int4"


def test_api_key_is_named_not_held() -> None:
    first = example().variants[0]
    assert first.api_key({"KEY": "s3cret"}) == "s3cret"
    assert first.api_key({}) is None
    assert first.api_key({"KEY": ""}) is None
    assert example().variants[1].api_key({"KEY": "s3cret"}) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"nope": 1}'])
def test_bad_file_names_the_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "runtime.json"
    path.write_bytes(data)
    with pytest.raises(RuntimeFileError, match=r"runtime\.json"):
        Runtime.read(path)


def test_bad_field_is_named() -> None:
    with pytest.raises(RuntimeFileError, match=r"config\.server\.port"):
        Runtime.from_json(b'{"config": {"server": {"port": "x"}}}')


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFileError, match="No such file"):
        Runtime.read(tmp_path / "none.json")
