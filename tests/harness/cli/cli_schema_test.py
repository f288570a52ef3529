"""`kvlab schema`: a JSON schema of configs that accepts what the program accepts, for editors."""

import json
import tomllib

import pytest
from jsonschema import Draft202012Validator
from program import CONFIG, HOME, kvlab

CONFIGS = sorted((HOME / "configs").glob("*.toml"))
TINY = tomllib.loads(CONFIG)


@pytest.fixture(scope="module")
def schema():
    printed = json.loads(kvlab("schema").stdout)
    assert printed["$schema"].endswith("2020-12/schema")
    Draft202012Validator.check_schema(printed)
    return printed


def is_valid(schema, config):
    return Draft202012Validator(schema).is_valid(config)


def keys_of(table, path=()):
    """The path of each key, of tables too."""
    for key, value in table.items():
        yield (*path, key)
        for at, inner in [(key, value)] if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []:
            if isinstance(inner, dict):
                yield from keys_of(inner, (*path, *((key,) if isinstance(at, str) else (key, at))))


def misspelt(config, path):
    changed = json.loads(json.dumps(config))
    table = changed
    for step in path[:-1]:
        table = table[step]
    table[path[-1] + "s"] = table.pop(path[-1])
    return changed


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_configs_are_valid_until_a_key_is_misspelt(schema, file):
    config = tomllib.loads(file.read_text())
    assert [error.message for error in Draft202012Validator(schema).iter_errors(config)] == []
    paths = list(keys_of(config))
    assert len(paths) > 4
    for path in paths:
        assert not is_valid(schema, misspelt(config, path)), path


@pytest.mark.parametrize("table, key, value, good", [
    ("", "experiment", "decod", False),
    ("", "experiment", "growth", True),
    ("", "arithmetic", "int4", False),
    ("", "seed", -1, False),
    ("sweep", "seq_len", ["4K", 64], True),
    ("sweep", "seq_len", ["4KB"], False),
    ("sweep", "seq_len", [], False),
    ("sweep", "seq_len", 0, False),
    ("sweep", "workload", "gausian", False),
    ("sweep", "cold_steps", 3, False),
    ("measure", "cold_steps", 3, True),
    ("measure", "cold_steps", 3.5, False),
    ("measure", "aa_test", 1, False),
    ("measure", "null_ab", True, True),
    ("measure", "memory", "1.5 GiB", True),
    ("measure", "memory", "4 gigabytes", False),
    ("model", "trust_config", "yes", False),
    ("decode", "repetitions", 0, False),
    ("decode", "attend", True, False),
    ("growth", "attend", False, True),
])
def test_schema_and_program_agree(schema, tmp_path, table, key, value, good):
    config = json.loads(json.dumps(TINY))
    (config.setdefault(table, {}) if table else config)[key] = value
    assert is_valid(schema, config) == good
    (tmp_path / "tiny.toml").write_text(CONFIG)
    done = kvlab("run", tmp_path / "tiny.toml", {".".join(filter(None, (table, key))): value}, "--list-shards", "1")
    assert (done.returncode == 0) == good, done.stderr


def test_keys_say_what_they_are(schema):
    text = kvlab("list").stdout
    for name in ("decode", "growth"):
        assert schema["properties"][name]["description"] in text
    sweep = schema["properties"]["sweep"]["properties"]
    assert "tokens" in sweep["seq_len"]["description"] and "workload" in sweep and "variants" in sweep
