"""Loading: the line and field of each mistake, all at once; YAML's traps; the environment; no traceback but ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from router.config.load import load
from router.config.problems import ConfigError, Problem
from router.config.schema import Config
from router.config.yamlfile import parse


def loaded(tmp_path: Path, text: str | bytes, env: dict[str, str] | None = None) -> Config:
    path = tmp_path / "bitgear.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path, env or {})


def mistakes(tmp_path: Path, text: str | bytes, env: dict[str, str] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, env)
    assert caught.value.problems
    return caught.value.problems


def test_no_file_gives_the_defaults() -> None:
    assert load(None, {}) == Config()


def test_bitgear_config_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "here.yaml"
    path.write_text("server: {port: 9000}")
    assert load(None, {"BITGEAR_CONFIG": str(path)}).server.port == 9000
    other = tmp_path / "other.yaml"
    other.write_text("server: {port: 9001}")
    assert load(other, {"BITGEAR_CONFIG": str(path)}).server.port == 9001


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "null\n", "{}\n", "\ufeff\n"])
def test_empty_file_gives_the_defaults(tmp_path: Path, text: str) -> None:
    assert loaded(tmp_path, text) == Config()


def test_all_mistakes_at_once_with_line_field_found_expected(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "server:\n  port: 99999\n  hots: x\nadmin:\n  port: true\nredis:\n  timeout_s: soon\n")
    assert [(p.origin.line, p.field) for p in found] == [
        (2, "server.port"), (3, "server.hots"), (5, "admin.port"), (7, "redis.timeout_s"),
    ]  # fmt: skip
    assert "99999" in found[0].found
    assert found[0].expected == "a whole number from 0 to 65535"
    assert "did you mean host?" in str(found[1])
    assert found[2].found == "true"
    assert "'soon'" in found[3].found
    assert found[3].expected == "a number above 0 (seconds)"
    assert all(p.origin.source.endswith("bitgear.yaml") for p in found)


def test_text_of_one_and_of_several_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as one:
        loaded(tmp_path, "server:\n  port: -1\n")
    expected = "bitgear.yaml:2: server.port: found the number -1, expected a whole number from 0 to 65535"
    assert str(one.value).endswith(expected)
    with pytest.raises(ConfigError) as two:
        loaded(tmp_path, "server:\n  port: -1\n  workers: 0\n")
    assert str(two.value).startswith("2 mistakes:\n")


def test_duplicate_keys_name_both_lines(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, "server:\n  port: 1\n  host: x\n  port: 2\n")
    assert (problem.origin.line, problem.field) == (4, "server.port")
    assert "first on line 2" in problem.found


def test_mistake_inside_a_list_and_between_fields(tmp_path: Path) -> None:
    text = "groups:\n  g:\n    backends:\n    - precision: int9\n      urls: [http://x]\n    - precision: int8\n"
    first, second = mistakes(tmp_path, text)
    assert (first.origin.line, first.field) == (4, "groups.g.backends[0].precision")
    assert (second.origin.line, second.field) == (6, "groups.g.backends[1]")
    assert "at least one base URL" in str(second)


def test_unknown_key_of_thresholds(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, "thresholds:\n  int3: 0.1\n")
    assert (problem.origin.line, problem.field) == (2, "thresholds.int3")
    assert "did you mean int" in problem.hint


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text\n", "42\n", "true\n"])
def test_top_must_be_a_mapping(tmp_path: Path, text: str) -> None:
    (problem,) = mistakes(tmp_path, text)
    assert "a mapping of server" in problem.expected
    assert problem.origin.line == 1


def test_no_is_text_where_text_belongs_and_false_where_a_switch_belongs(tmp_path: Path) -> None:
    config = loaded(tmp_path, "events: {enabled: no}\npolicy_version: no\n")
    assert config.events.enabled is False
    assert config.policy_version == "no"


@pytest.mark.parametrize("text", ["010", "0777", "00", "0_1", "+07"])
def test_leading_zero_is_ambiguous(tmp_path: Path, text: str) -> None:
    (problem,) = mistakes(tmp_path, f"server:\n  port: {text}\n")
    assert problem.origin.line == 2
    assert "octal" in problem.hint


@pytest.mark.parametrize(("text", "value"), [("1e3", 1000), ("0x10", 16), ("0o17", 15), ("1_000", 1000), ("'12'", 12)])
def test_numbers(tmp_path: Path, text: str, value: int) -> None:
    assert loaded(tmp_path, f"server: {{port: {text}}}").server.port == value


@pytest.mark.parametrize("text", [".inf", "nan", "'1e999'", "-.inf", ".nan", "1e999", "9" * 500, "12:30", "2026-01-01"])
def test_not_a_usable_number(tmp_path: Path, text: str) -> None:
    (problem,) = mistakes(tmp_path, f"redis: {{timeout_s: {text}}}")
    assert problem.field == "redis.timeout_s"
    assert len(str(problem)) < 300


def test_number_where_text_belongs_says_quotes(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, "policy_version: 2\n")
    assert "quotes" in problem.hint


def test_null_where_none_is_allowed(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, "server: {port: null}\n")
    assert "leave the line out" in problem.hint


def test_billion_laughs_is_bounded(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    (problem,) = mistakes(tmp_path, "\n".join(lines))
    assert "too many values" in problem.found


def test_alias_inside_itself(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, "server: &a\n  host: *a\n")
    assert "alias" in problem.found
    assert problem.origin.line == 2


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    text = (
        "groups:\n"
        "  a: &a\n    scenario: batch\n    backends: [&b {precision: int8, urls: [http://x]}]\n"
        "  b:\n    <<: *a\n    scenario: edge\n"
        "  c:\n    backends: [{<<: *b, precision: int4}]\n"
    )
    groups = loaded(tmp_path, text).groups
    assert (groups["a"].scenario, groups["b"].scenario) == ("batch", "edge")
    assert groups["b"].backends == groups["a"].backends
    assert (groups["c"].backends[0].precision, groups["c"].backends[0].urls) == ("int4", ("http://x",))


def test_tab_says_spaces(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, "server:\n\tport: 1\n")
    assert problem.origin.line == 2
    assert "spaces" in problem.hint


def test_deep_nesting(tmp_path: Path) -> None:
    for text in ("[" * 5000, "{a: " * 5000, "a:\n" + "".join(" " * i + "- \n" for i in range(200))):
        mistakes(tmp_path, text)


def test_invalid_utf8_names_line_and_byte(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, b"server:\n  host: \xff\n")
    assert problem.origin.line == 2
    assert "0xff" in problem.found


def test_control_character_names_its_line(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, b"server:\n  host: \x01\n")
    assert problem.origin.line == 2


@pytest.mark.parametrize(
    "text", ["a: !!python/object:os.system x", "a: !custom {}", "--- {}\n--- {}\n", "? [a]\n: b\n"]
)
def test_tags_documents_and_keys(tmp_path: Path, text: str) -> None:
    mistakes(tmp_path, text)


def test_missing_file_directory_and_size(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: found no such file"):
        load(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigError, match="found a directory"):
        load(tmp_path, {})
    with pytest.raises(ConfigError, match="found a longer file"):
        loaded(tmp_path, "#" * (1 << 21))
    with pytest.raises(ConfigError, match="expected a YAML file"):
        load(tmp_path / ("x" * 300), {})
    with pytest.raises(ConfigError, match="expected a YAML file"):
        load(Path("a\0b"), {})


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    text = (
        "redis: {url: 'http://me:hunter2@x'}\n"
        "groups: {g: {backends: [{precision: int8, urls: [http://x], api_key: hunter2, api_key_env: sk-hunter2}]}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert "hunter2" not in str(caught.value)
    assert len(caught.value.problems) == 3


def test_a_scenario_keeps_its_other_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, "scenarios: {realtime: {ttft_ms: 500}}\n")
    default = Config()
    assert config.scenarios.realtime == default.scenarios.realtime.model_copy(update={"ttft_ms": 500})


ENV = [
    ("BITGEAR_SERVER__PORT", "9000", lambda c: c.server.port == 9000),
    ("BITGEAR_SERVER", '{"port": 9000, "host": "::"}', lambda c: (c.server.port, c.server.host) == (9000, "::")),
    ("BITGEAR_LOCAL__PRECISIONS", "fp16,int4", lambda c: c.local.precisions == ("fp16", "int4")),
    ("BITGEAR_LOCAL__PRECISIONS", '["int8"]', lambda c: c.local.precisions == ("int8",)),
    ("BITGEAR_THRESHOLDS__INT8", "0.1", lambda c: c.thresholds["int8"] == 0.1),
    ("BITGEAR_EVENTS__ENABLED", "no", lambda c: c.events.enabled is False),
    ("BITGEAR_POLICY_VERSION", "7", lambda c: c.policy_version == "7"),
    ("BITGEAR_REDIS__URL", "null", lambda c: c.redis.url is None),
    ("BITGEAR_REDIS__URL", "redis://h:1/0", lambda c: c.redis.url == "redis://h:1/0"),
    ("BITGEAR_SERVER__PORT", "", lambda c: c.server.port == 8400),
    ("BITGEAR_SERVER_PORT", "tcp://10.0.0.1:8400", lambda c: c.server.port == 8400),
    ("BITGEAR_SERVICE_HOST", "10.0.0.1", lambda c: c == Config()),
    ("OTHER_SERVER__PORT", "1", lambda c: c == Config()),
]


@pytest.mark.parametrize(("name", "text", "holds"), ENV)
def test_environment_override(name: str, text: str, holds: object) -> None:
    assert callable(holds)
    assert holds(load(None, {name: text}))


def test_environment_beats_the_file_and_reaches_into_groups(tmp_path: Path) -> None:
    text = "server: {port: 1, host: h}\ngroups: {Qwen: {backends: [{precision: int8, urls: [http://x]}]}}\n"
    env = {
        "BITGEAR_SERVER__PORT": "2",
        "BITGEAR_GROUPS__QWEN__BACKENDS__0__PRICE": "3",
        "BITGEAR_GROUPS__QWEN__BACKENDS__1": '{"precision": "int4", "urls": ["http://y"]}',
    }
    config = loaded(tmp_path, text, env)
    assert (config.server.port, config.server.host) == (2, "h")
    assert [(b.price, b.precision) for b in config.groups["Qwen"].backends] == [(3, "int8"), (1, "int4")]


BAD_ENV = [
    ("BITGEAR_SERVER__PORT", "x", "server.port"),
    ("BITGEAR_SERVER__PROT", "1", "did you mean PORT"),
    ("BITGEAR_SERVR__PORT", "1", "did you mean SERVER"),
    ("BITGEAR_SERVER_PORT", "1", "did you mean BITGEAR_SERVER__PORT"),
    ("BITGEAR_SERVER__PORT__X", "1", "no more levels"),
    ("BITGEAR_SERVER__", "1", "unknown field"),
    ("BITGEAR_SERVER", "{", "a mapping of host"),
    ("BITGEAR_SERVER", "3", "a mapping of host"),
    ("BITGEAR_SERVER", '{"prot": 1}', "did you mean port"),
    ("BITGEAR_SERVER__PORT", "010", "octal"),
    ("BITGEAR_GROUPS__G__BACKENDS__5__PRICE", "1", "a mapping"),
]


@pytest.mark.parametrize(("name", "text", "part"), BAD_ENV)
def test_mistake_in_the_environment_names_the_variable(name: str, text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {name: text})
    assert caught.value.problems[0].origin.source == name
    assert part in str(caught.value)


def only_config_errors(path: Path | None, env: dict[str, str]) -> None:
    try:
        result: Config | ConfigError = load(path, env)
    except ConfigError as error:
        result = error
    assert isinstance(result, Config) or (result.problems and str(result).encode())


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["int4", "no", "010"])
)
names = st.one_of(
    st.sampled_from(
        ["server", "port", "groups", "g", "backends", "precision", "urls", "thresholds", "int4", "scenarios"]
    ),
    st.text(max_size=6),
)
trees = st.recursive(
    scalars, lambda t: st.one_of(st.lists(t, max_size=3), st.dictionaries(names, t, max_size=4)), max_leaves=20
)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(text=st.one_of(st.text(), st.text(alphabet="ab:-[]{}&*!|>'\"%@`#?, \n\t<=0~\\xU"), trees.map(yaml.safe_dump)))
@example(text='"\\UFFFFFFFF"')
@example(text="%YAML 99999999999999999999.1\n---\na: b")
@example(text="&a [*a]")
@example(text="? \n")
@example(text="server: {<<: [1, {port: 2}]}")
@example(text="groups: {'': {backends: [{precision: int4, urls: [http://x]}]}}")
def test_any_text_gives_a_config_or_a_config_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    only_config_errors(path, {})


@settings(
    max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(raw=st.binary(max_size=200))
def test_any_bytes_give_a_config_or_a_config_error(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(raw)
    only_config_errors(path, {})


variables = st.one_of(
    st.lists(
        st.sampled_from(
            ["SERVER", "PORT", "GROUPS", "G", "BACKENDS", "LOCAL", "PRECISIONS", "0", "²", "٣", "", "THRESHOLDS", "INT4", "X"]
        ),
        max_size=5,
    ).map("__".join).map("BITGEAR_".__add__),
    st.text(max_size=10).map("BITGEAR_".__add__),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(env=st.dictionaries(variables, st.one_of(st.text(max_size=20), trees.map(yaml.safe_dump)), max_size=4))
@example(env={"BITGEAR_LOCAL__PRECISIONS__²": "int8"})
def test_any_environment_gives_a_config_or_a_config_error(env: dict[str, str]) -> None:
    env.pop("BITGEAR_CONFIG", None)
    only_config_errors(None, env)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.text(max_size=10)),
    lambda t: st.one_of(st.lists(t, max_size=3), st.dictionaries(st.text(max_size=5), t, max_size=3)),
    max_leaves=15,
)


@settings(max_examples=200, deadline=None)
@given(value=json_values)
def test_json_is_read_as_json(value: object) -> None:
    parsed = parse(json.dumps(value, ensure_ascii=True), "x")
    assert parsed.problems == []
    assert parsed.data == value


def test_a_threshold_is_a_share(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "thresholds: {int8: 7}\n"
        "groups: {g: {thresholds: {int4: -1}, backends: [{precision: fp16, urls: ['http://h:1']}]}}\n"
        "timeouts: {connect_s: 0}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    told = [(p.field, p.found, p.expected) for p in caught.value.problems]
    assert told[:2] == [
        ("thresholds.int8", "the number 7", "a number from 0 to 1"),
        ("groups.g.thresholds.int4", "the number -1", "a number from 0 to 1"),
    ]
    assert told[2][0] == "timeouts.connect_s"


@pytest.mark.parametrize("section", ["REDIS", "CACHE"])
@pytest.mark.parametrize(
    "url",
    ["redis://h:x", "redis://h:99999/0", "redis://[::1", "rediss://u:sec/ret@h:1", "redis+sentinel://a:1,b:x/s"],
)
def test_a_redis_url_without_a_port_that_can_be_is_refused_and_not_told(section: str, url: str) -> None:
    with pytest.raises(ConfigError, match=rf"BITGEAR_{section}__URL") as caught:
        load(None, {f"BITGEAR_{section}__URL": url})
    assert "port from 0 to 65535" in str(caught.value)
    assert url not in str(caught.value)
    assert "ret@h" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://u:p%40@h:1/0",
        "unix:///a:x/b?db=1",
        "redis+sentinel://u:p@a:1,[::1]:2/s/3",
        "rediss://[::1]/0",
    ],
)
def test_a_redis_url_that_can_be_is_taken(url: str) -> None:
    config = load(None, {"BITGEAR_REDIS__URL": url, "BITGEAR_CACHE__URL": url})
    assert (config.redis.url, config.cache.url) == (url, url)
