"""Input that is deep, long or in no encoding: one line of bounded length, and nothing that was finished is lost."""

import json
import os
import struct

import pytest
from cli_eval_test import make_dump
from program import CONFIG, assert_refused, kvlab, run, succeeded, table

DEEP = 100_000
HUGE = "x" * 4_000_000
MODEL = {"model_type": "gemma2", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
CLAIM = """
document = "d"
{head}
[[claim]]
id = "i"
text = "t"
where = "w"
quote = "q"
check = "formula"
{keys}
"""


def assert_refused_briefly(done, *parts):
    assert_refused(done, *parts)
    assert len(done.stderr) < 2500


@pytest.mark.parametrize("text, parts", [
    ("a = " + "[" * DEEP + "]" * DEEP, [":1: brackets are nested more than 64 deep"]),
    ("title = 'x'\na = " + "{a=" * DEEP, [":2: brackets are nested more than 64 deep"]),
    (".".join("a" * 40_000) + " = 1", [":1: a dotted key is more than 16 deep"]),
    ("title = '.[.['\n# " + "." * 20 + "[" * 70 + "\n[" + ".".join("a" * 40_000) + "]", [":3: a dotted key is"]),
    (f'experiment = "{HUGE}"', [":1: experiment has 'x", "known: decode"]),
    (f"{HUGE} = 1\n{CONFIG}", [":1: x", "is not a key that is known here; known: "]),
    (f'sweep.variants = "{HUGE}"\nexperiment = "decode"', [":1: sweep.variants has a mistake"]),
    ('experiment = "a\\nb\\u001b[31m"', ["has 'a b"]),
], ids=range(8))
def test_a_config_is_refused_briefly(tmp_path, text, parts):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    done = run(path, tmp_path / "out")
    done.stderr = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("  "))  # a spec's place
    assert_refused_briefly(done, *parts)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("setting, parts", [
    ("sweep.seq_len=" + "[" * DEEP, ["--set", "brackets are nested more than 64 deep"]),
    (".".join("a" * DEEP)[:DEEP] + "=1", ["--set", "a dotted key is more than 16 deep"]),
    ("isa=" + "x" * DEEP, ["x"]),
], ids=range(3))
def test_a_setting_is_refused_briefly(config, tmp_path, setting, parts):
    assert_refused_briefly(run(config, tmp_path / "out", "--set", setting), *parts)


@pytest.mark.parametrize("text, parts", [
    ('{"text_config": {"num_hidden_layers": ' + "[" * DEEP + "]" * DEEP + "}}", ["nested more than 64 deep"]),
    ('{"a":' * DEEP + "1" + "}" * DEEP, ["nested more than 64 deep"]),
    (json.dumps({**MODEL, "num_hidden_layers": HUGE}), ["'num_hidden_layers' is ", "expected a positive integer"]),
    (json.dumps({**MODEL, "layer_types": [HUGE, "x"]}), ["'layer_types' has", "kvlab knows full_attention"]),
    ('{"num_hidden_layers": 1e400}', ["number overflow parsing '1e400'"]),
], ids=range(5))
def test_a_model_config_is_refused_briefly(tmp_path, text, parts):
    (tmp_path / "config.json").write_text(text)
    assert_refused_briefly(kvlab("tables", "--model", tmp_path / "config.json"), "config.json: ", *parts)


@pytest.mark.parametrize("header, parts", [
    ("[" * DEEP + "]" * DEEP, ["its header is nested deeper than the format allows"]),
    ('{"q": {"dtype": "F32", "shape": [1e400], "data_offsets": [0, 0]}}', ["its header has a number that is too large"]),
    ('{"q": {"dtype": "' + HUGE + '", "shape": [0], "data_offsets": [0, 0]}}', ['tensor "q": unknown dtype', "known are"]),
], ids=range(3))
def test_a_dump_is_refused_briefly(tmp_path, header, parts):
    (tmp_path / "dump").write_bytes(struct.pack("<Q", len(header)) + header.encode())
    assert_refused_briefly(kvlab("eval", tmp_path / "dump", "--variants", "concat", "--out", tmp_path / "out"), *parts)


def test_a_trace_is_refused_briefly(config, tmp_path):
    (tmp_path / "trace.jsonl").write_text('{"input_length": ' + "[" * DEEP + "]" * DEEP + "}\n")
    settings = {"experiment": "batch", "sweep.batch": 2, "batch.lengths": f"trace({tmp_path / 'trace.jsonl'})"}
    done = run(config, tmp_path / "out", settings)
    assert_refused_briefly(done, "trace.jsonl:1: its brackets are nested more than 64 deep")


def reproduce_claim(folder, head, keys):
    (folder / "claim.toml").write_text(CLAIM.format(head=head, keys=keys))
    return kvlab("reproduce", folder / "claim.toml", "--out", folder / "out", "--no-plots", timeout=60)


def chain(n, link):
    return "[define]\na0 = 1\n" + "".join(f'a{i} = "{link.format(i - 1)}"\n' for i in range(1, n + 1))


@pytest.mark.parametrize("head, keys, parts", [
    ("", 'published = "1"\ncomputed = "1e400"', ["i.computed '1e400': the number 1e400"]),
    ("", 'published = "1e400"\ncomputed = 1', ["i.published has the number 1e400"]),
    ("", 'published = "1e99999999999"\ncomputed = 1', ["i.published has the number 1e99999999999"]),
    ("", f'published = "{"1" * 200_000}"\ncomputed = 1', ["i.published is a text of 200000 bytes"]),
    ("", f'published = "1"\ntolerance = "{"1" * 200_000} %"\ncomputed = 1', ["i.tolerance is a text of 200002 bytes"]),
    ("", f'published = "1"\ncomputed = "{"(" * DEEP}1{")" * DEEP}"', ["i.computed is an expression of 200001 bytes"]),
    (chain(20_000, "a{0}"), 'published = "1"\ncomputed = "a20000"', ["i.computed has 'a", "defined by one another"]),
    (chain(30, "b - a{0}") + 'b = "b"\n', 'published = "1"\ncomputed = "a30"', ["has 'b', which is defined by itself"]),
    ("[model]\nkv_heads = 1\nhead_dim = 8", 'published = "1"\ncomputed = "c"\nbytes = { c = "concat" }\ntokens = "c"',
     ["i.tokens has 'c', whose bytes depend on it"]),
    ("[model]\nkv_heads = 1\nhead_dim = 8", 'published = "1"\ncomputed = "c"\nbytes = { c = "contiguous" }\ntokens = 64\nreserve = 8',
     ["i: reserve is 8; it must be from 64 to"]),
], ids=range(10))  # fmt: skip
def test_a_claim_is_refused_briefly(tmp_path, head, keys, parts):
    assert_refused_briefly(reproduce_claim(tmp_path, head, keys), "claim.toml:", *parts)


def test_a_chain_of_definitions_is_looked_up_once_a_name(tmp_path):
    """Every name has the one before it twice: 2^60 paths, and 60 names."""
    done = reproduce_claim(tmp_path, chain(60, "(a{0} + a{0}) / 2"), 'published = "1"\ncomputed = "a60"')
    assert "1 checks: 1 reproduced" in succeeded(done).stdout


def test_a_path_that_is_no_utf8_loses_no_results(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    make_dump(folder / "d", "F32")
    assert kvlab("eval", folder / "d", "--variants", "concat", "--out", folder / "out", text=False).returncode == 0
    assert [row["status"] for row in table(folder / "out" / "cells.csv")] == ["ok"]
    assert json.loads((folder / "out" / "env.json").read_text())["config"]["path"].endswith("caf\ufffd/d")
    (folder / "out" / "config.toml").read_text(encoding="utf-8")

    config = folder / os.fsdecode(b"\xff.toml")
    config.write_text(CONFIG)
    assert run(config, folder / "run", {"sweep.seq_len": 8, "experiment": "decode"}, text=False).returncode == 0
    assert json.loads((folder / "run" / "env.json").read_text())["config"]["name"] == "\ufffd"
    (folder / "run" / "config.toml").read_text(encoding="utf-8")


def test_a_name_that_the_system_refuses_gets_our_words(tmp_path):
    for arguments in (["run", "x" * 300], ["tables", "--model", f"{'x' * 300}.json"], ["eval", "x" * 300, "--variants", "concat"]):
        done = kvlab(*arguments, *([] if arguments[0] == "tables" else ["--out", tmp_path / "out"]))
        assert_refused_briefly(done, "xxx")
        assert "filesystem error" not in done.stderr
