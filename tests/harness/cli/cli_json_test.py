"""--json: the same as the text, for programs, and nothing else on standard output."""

import json
import re
import sys

import pytest
from program import ENV, kvlab, succeeded, table, write_table


def parsed(*args):
    return json.loads(succeeded(kvlab(*args, "--json")).stdout)


def test_summary(results):
    rows = table(results / "cells.csv")
    summary = parsed("summary", results)
    assert summary["results"] == str(results)
    points = {(row["experiment"], row["seq_len"]) for row in rows}
    assert len(summary["answers"]) == 3 * len(points)
    by_key = {row["cell"]: row for row in rows}
    for answer in summary["answers"]:
        if answer["cell"] is None:  # on a noisy machine
            assert answer["question"] == "fastest" and answer["text"].startswith("none: the baseline ")
            continue
        best = by_key[answer["cell"]]
        assert best["variant"] == answer["variant"]
        if answer["question"] == "smallest":
            assert answer["value"] == {"value": float(best["held_bytes_per_token"]), "interval": None}
        if answer["question"] == "fastest" and best["experiment"] == "decode" and best["verdict"] != "baseline":
            assert answer["value"]["value"] == pytest.approx(float(best["ratio_p50"]))
            assert answer["value"]["interval"] == [float(best["ratio_ci_low"]), float(best["ratio_ci_high"])]


def test_an_older_folder_beside_a_noisy_baseline_has_no_verdict(copy):
    """Whatever its cells.csv says."""
    rows = table(copy / "cells.csv")
    for row in rows:
        if row["verdict"] == "baseline":
            row["noise"] = "the hypervisor took 40 % of the processors"
        elif row["verdict"] != "aa_test":
            row["verdict"] = "slower"
    write_table(copy / "cells.csv", rows)
    summary = parsed("summary", copy)
    assert {cell["verdict"] for cell in summary["cells"]} == {"baseline", "aa_test", "unreliable"}
    fastest = [answer for answer in summary["answers"] if answer["question"] == "fastest"]
    assert fastest and all(answer["cell"] is None and answer["text"] == "none: the baseline is noisy" for answer in fastest)
    assert " slower" not in succeeded(kvlab("summary", copy, "--table", "full")).stdout


def test_a_run_prints_its_summary_alone(config, tmp_path):
    python = {**ENV, "KVLAB_PYTHON": sys.executable}
    done = succeeded(kvlab("run", config, "--out", tmp_path / "out", "--json", {"sweep.seq_len": 32}, env=python))
    assert json.loads(done.stdout)["results"] == str(tmp_path / "out")
    assert "report.html" in done.stderr and f"results: {tmp_path / 'out'}" in done.stderr


def test_a_run_without_charts_says_why_at_its_end(config, tmp_path):
    why = {**ENV, "KVLAB_NO_PYTHON": "ERROR: no \x1b[1mnetwork (pip's output: x.log)"}
    said = succeeded(kvlab("run", config, "--out", tmp_path / "out", {"sweep.seq_len": 32}, env=why)).stderr.splitlines()
    assert said[-2].startswith("charts: not drawn") and said[-2].endswith("network (pip's output: x.log)") and "\x1b" not in said[-2]
    assert said[-1] == f"charts: `kvlab plot {tmp_path / 'out'}` draws them"


def test_list_says_what_its_text_says():
    lists, printed = parsed("list"), succeeded(kvlab("list"))
    text = printed.stdout
    assert printed.stderr == ""
    assert list(lists) == ["placements", "codecs", "retentions", "selections", "configs", "models", "experiments", "workloads", "metrics", "engines", "isas"]
    entries = [entry for kind in set(lists) - {"models", "isas"} for entry in lists[kind]]
    for entry in entries:
        assert f"  {entry['name']}" in text and entry["help"] and entry["help"] in text
        for parameter in entry.get("parameters", []):
            assert all(parameter[key] in text for key in ("name", "range", "default", "help"))
    some = "contiguous concat doubling f32 f16 full all quest topk gaussian outliers sinks heavy local dump model configs/quickstart.toml"
    metrics = "err_max_abs err_rel_l2 err_cosine err_attn_kl err_attn_mass err_attn_recall"
    assert {*some.split(), *metrics.split()} <= {entry["name"] for entry in entries}
    assert re.search(r"^    read +view\|copy\|repeat +default view +\S", text, re.M)
    assert {model["name"] for model in parsed("list", "--models")} == set(lists["models"])


def test_lists_of_models_and_columns():
    llama = next(model for model in parsed("list", "--models") if model["name"] == "llama-3-8b")
    assert (llama["layers"], llama["kv_heads"], llama["head_dim"], llama["f16_bytes_at_8192"]) == (32, 8, 128, 1 << 30)
    stages = {kind: parsed("list")[kind] for kind in ("placements", "codecs", "retentions", "selections")}
    assert parsed("list", "variants") == stages and kvlab("list").stdout.startswith(kvlab("list", "variants").stdout)
    columns = parsed("list", "columns")
    text = kvlab("list", "columns").stdout
    assert all(f"  {column['name']} " in text for own in columns.values() for column in own)
    ratio = next(column for column in columns["cells.csv"] if column["name"] == "ratio_p50")
    assert ratio["type"] == "number" and ratio["help"] in text
    passage = next(column for column in columns["cells.csv"] if column["name"] == "distance")
    assert passage["experiments"] == ["recall"]
