"""`kvlab run --dry-run`: cells, memory, time and downloads of a run, and nothing on the disk."""

import json
import shutil
import sys

import pytest
from program import ENV, HOME, assert_refused, change_environment, kvlab, succeeded, table


def dry_run(config, *args, **options):
    return json.loads(succeeded(kvlab("run", config, "--dry-run", "--json", *args, **options)).stdout)


@pytest.fixture
def home(tmp_path):
    """A project folder without earlier runs, Python and models, and the environment that names it."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("harness", "configs"):
        (folder / name).symlink_to(HOME / name)
    return folder, {**ENV, "KVLAB_HOME": str(folder)}


def everything_in(folder):
    return sorted(folder.rglob("*"))


def test_it_lists_the_cells_that_the_run_has(config, results, home, tmp_path):
    folder, env = home
    plan = dry_run(config, "--out", tmp_path / "out", env=env)
    rows = table(results / "cells.csv")
    for part in plan["experiments"]:
        assert part["cells"] == sum(row["experiment"] == part["experiment"] for row in rows)
        assert part["points"] == len({row["seq_len"] for row in rows if row["experiment"] == part["experiment"]})
    largest = max(int(row["bytes_payload"]) for row in rows)
    assert largest < plan["all"]["peak_bytes"] < plan["available_bytes"]
    assert "rough" in plan["estimated_from"] and plan["all"]["estimated_s"] > 0
    text = succeeded(kvlab("run", config, "--dry-run", env=env)).stdout
    assert "Nothing was written" in text and str(len(rows)) in text and len(text.splitlines()) < 20


@pytest.mark.parametrize("settings, share, scaled", [({}, 1, False), ({"sweep.variants": ["contiguous", "concat"]}, 3 / 7, True)])
def test_an_earlier_run_is_the_clock(config, results, home, settings, share, scaled):
    folder, env = home
    run = shutil.copytree(results, folder / "results" / "here" / "run")
    change_environment(run, started="2026-01-01T00:00:00Z", finished="2026-01-01T01:10:00Z")
    plan = dry_run(config, settings, env=env)
    assert plan["estimated_from"].startswith("results/here/run took 70.0 min")
    assert ("scaled" in plan["estimated_from"]) == scaled
    assert plan["all"]["estimated_s"] == pytest.approx(4200 * share, rel=1e-3)


def test_a_shard_is_a_part(config, home):
    whole = dry_run(config, env=home[1])["all"]
    parts = [dry_run(config, "--shard", f"{i}/2", env=home[1])["all"] for i in (1, 2)]
    for key in ("points", "cells", "estimated_s"):
        assert sum(part[key] for part in parts) == pytest.approx(whole[key], rel=0.01, abs=0.1), key


def test_cells_that_cannot_run_are_said(config, home):
    plan = dry_run(config, {"sweep.seq_len": [32, 1 << 24], "model.kv_heads": 4, "model.head_dim": 256, "measure.memory": "1MiB"}, env=home[1])
    assert plan["all"]["measured"] < plan["all"]["cells"]
    assert "out_of_memory" in plan["not_measured_as"] and "measure.memory" in plan["not_measured_as"]


def test_a_download_is_said_and_not_made(home, tmp_path):
    before = everything_in(tmp_path)
    plan = dry_run("configs/real.toml", env=home[1])
    assert everything_in(tmp_path) == before
    assert plan["prepares"] == "model 'smollm2-135m', 93 MB to download, licence Apache-2.0"
    assert plan["all"]["points"] == 2 and plan["all"]["peak_bytes"] is None
    text = succeeded(kvlab("run", "configs/real.toml", "--dry-run", env=home[1])).stdout
    assert "93 MB to download" in " ".join(text.split())


def test_a_key_of_one_of_several_tables_is_set(home):
    whole, first = (dry_run("configs/serve.toml", *words, env=home[1])["all"]["cells"] for words in (
        [], ["--set", "serve.0.requests=16", "--set", "serve.0.variants=contiguous/f16"]))  # fmt: skip
    assert 0 < first < whole


def test_a_broken_model_is_refused_before_it_is_converted(home, tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(8))
    env = {**home[1], "KVLAB_PYTHON": sys.executable}
    assert_refused(kvlab("run", "configs/real.toml", "--dry-run", "--model", tmp_path / "broken.gguf", env=env), "is broken, truncated or not a GGUF file")
    assert not (home[0] / ".models").exists()


def test_mistakes_are_those_of_the_run(config, results, tmp_path):
    assert_refused(kvlab("run", config, "--dry-run", "--out", results), "already holds")
    assert_refused(kvlab("run", config, "--dry-run", "--set", "sweep.variants=contiguous/f61"), "did you mean", lines=3)
