"""`kvlab tables`: memory of models by closed form, in every format."""

import csv
import json
import re

import pytest
from program import ENV, HOME, assert_refused, by_variant, cells_of, kvlab, run, succeeded

TWO = "contiguous/f16; paged(block=16)/q8_0"


def tables(*args, **options):
    return kvlab("tables", *args, **options)


def csv_table(*args):
    return list(csv.DictReader(succeeded(tables("--format", "csv", *args)).stdout.splitlines()))


def test_tables_are_the_closed_form_and_the_ledgers_count(config_json):
    rows = csv_table("--model", config_json(), "--variants", TWO, "--lengths", "1,100..400", "--batch", 3)
    assert [(row["seq_len"], row["variant"]) for row in rows] == [
        (n, v) for n in ("1", "100", "200", "400") for v in ("contiguous/f16", "paged/q8_0")]
    for row in rows:
        n = int(row["seq_len"])
        values = 2 * 2 * 2 * 32  # values a token: layers, K and V, heads, head_dim
        blocks = 3 * -(-n // 16)
        # q8_0: 34 bytes for 32 values. A block has an entry in its table, one in the free list and a count.
        want = 3 * n * values * 2 if "f16" in row["variant"] else blocks * (16 * values * 34 // 32 + 2 * 3 * 4)
        assert (row["model"], row["status"], int(row["bytes"])) == ("tiny", "measured", want), row
        assert float(row["bytes_per_token"]) == pytest.approx(want / (3 * n))


def test_tables_mark_what_is_computed_only(config_json):
    row_bytes = 2 * 2 * 2 * 32 * 2
    args = ["--model", config_json(), "--variants", "contiguous/f16", "--lengths", "10,11", "--measure", f"{10 * row_bytes}B"]
    assert [row["status"] for row in csv_table(*args)] == ["measured", "computed"]
    shown = tables(*args).stdout
    assert re.search(r"^ *10 +5\.00 KiB$", shown, re.M) and re.search(r"^ *11 +5\.50 KiB\*$", shown, re.M)
    assert "* computed only" in shown


def test_all_usual_variants_store_latents(config_json):
    latent = csv_table("--model", config_json(model_type="deepseek_v2", kv_lora_rank=96, qk_rope_head_dim=32), "--lengths", "100")
    assert {cell["status"] for cell in latent} == {"measured"}


def test_tables_know_specs_of_layers(config_json):
    model = config_json(model_type="cohere2", sliding_window=100, sliding_window_pattern=2)
    args = ["--model", model, "--lengths", "5000", "--variants"]
    cells = csv_table(*args, "contiguous/q8_0 + sliding:contiguous/ring(window=model);contiguous + 1,0:contiguous/f16")
    row = 2 * 2 * 32  # values of a layer and token; the second of two layers is full
    assert [cell["variant"] for cell in cells] == ["contiguous/q8_0 + sliding:contiguous/ring(window=model)",
                                                   "contiguous + 0-1:contiguous/f16"]
    assert [int(cell["bytes"]) for cell in cells] == [row // 32 * 34 * 5000 + row * 4 * 100, row * 2 * 5100]
    assert_refused(tables(*args, "contiguous + slidng:concat"), "no layers of kind 'slidng'", "sliding (1 layer)",
                   "did you mean 'sliding'?", lines=3)
    assert_refused(tables(*args, "contiguous + 1-2:concat"), "there is no layer 2", lines=3)


def test_examples_of_specs_in_comments_parse(config_json):
    stage = r"[a-z_0-9]+(?:\([^)`]*\))?"
    texts = [re.sub(r"\n// ?", " ", path.read_text()) for path in (HOME / "variants").rglob("*.[ch]*")]
    specs = [spec for text in texts for spec in re.findall(rf"`({stage}/[^`\n]*)`", text) if "[" not in spec]
    assert any("quest" in spec for spec in specs)
    csv_table("--model", config_json(), "--variants", ";".join(specs))


@pytest.mark.parametrize(("command", "size"), [
    (("tables", "--model", "CONFIG,llama-2-7b", "--lengths", "64,1K"), "bytes"),
    (("plan", "--model", "CONFIG", "--weights", "1MB", "--memory", "80GB", "--context", "8K", "--users", "2"), "held_bytes"),
])
def test_json_has_what_csv_has(config_json, tmp_path, command, size):
    words = [word.replace("CONFIG", str(config_json())) for word in (*command, "--variants", TWO)]
    rows = json.loads(succeeded(kvlab(*words, "--json")).stdout)
    assert all(isinstance(row[size], int) and isinstance(row["model"], str) for row in rows)
    assert [{name: str(value) for name, value in row.items()} for row in rows] == [
        {name: value for name, value in row.items() if value}
        for row in csv.DictReader(succeeded(kvlab(*words, "--format", "csv")).stdout.splitlines())
    ]
    succeeded(kvlab(*words, "--out", tmp_path / "t.json"))
    assert json.loads((tmp_path / "t.json").read_text()) == rows


def test_several_models_are_one_csv_and_several_tables(config_json):
    args = ["--model", f"{config_json()},llama-2-7b", "--variants", "contiguous/f16", "--lengths", "64", "--measure", "0B"]
    assert [(row["model"], row["bytes"]) for row in csv_table(*args)] == [("tiny", str(64 * 512)), ("llama-2-7b", str(32 << 20))]
    assert tables(*args).stdout.count("KV cache of") == 2


@pytest.mark.parametrize("mode", [[], ["--budget", "1MiB", "--weights", "0B"]])
def test_every_format_has_the_same_cells(config_json, tmp_path, mode):
    specs = "contiguous/f16; contiguous/split(k=q8_0,v=q4_0); contiguous/kivi(bits=2)"
    args = ["--model", config_json(model_type="mistral", sliding_window=100), "--variants", specs, "--lengths", "64,256", *mode]
    shown = {}
    for format, ending in (("terminal", "txt"), ("markdown", "md"), ("latex", "tex")):
        out = tmp_path / f"table.{ending}"
        succeeded(tables(*args, "--out", out))
        shown[format] = out.read_text()
        assert shown[format].isascii()
        assert tables(*args, "--format", format).stdout == shown[format]
    latex = shown["latex"]
    braces = re.sub(r"\\[{}]|[^{}]", "", latex)
    while "{}" in braces:
        braces = braces.replace("{}", "")
    assert braces == ""
    opened, closed = (re.findall(rf"\\{word}{{(\w+)}}", latex) for word in ("begin", "end"))
    assert opened == ["table", "tabular", "minipage"] and closed == ["tabular", "minipage", "table"]
    columns = len(re.search(r"\\begin{tabular}{([lr])(r+)}", latex)[2])
    body = latex[latex.index("\\toprule"):latex.index("\\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert all(len(re.findall(r"(?<!\\)&", line)) == columns for line in lines)
    assert not re.search(r"(?<!\\)[_#%$^~]", body)
    pipes = [line for line in shown["markdown"].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in pipes}) == 1 and pipes[0].count("|") == columns + 2
    numbers = lambda text: re.findall(r"\d[\d,.]* (?:KiB|MiB|B)\b|\b\d+,\d+\b", text.replace("\\,", " "))
    cells = [numbers(text) for text in ("\n".join(shown["terminal"].split("---\n")[1:]), "\n".join(pipes), body)]
    assert cells[1] == cells[2] and [cell for cell in cells[0] if cell in cells[1]][:len(cells[1])] == cells[1]


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_tables_fit_the_terminal(columns):
    budget = ["--budget", "80GiB"] + (["--variants", "contiguous/f16; contiguous/kivi(bits=2)"] if columns < 48 else [])
    for args in (["--model", "gemma-3-27b,deepseek-v3"], budget):
        done = succeeded(tables(*args, "--measure", "0B", env={**ENV, "COLUMNS": str(columns)}))
        assert max(map(len, done.stdout.splitlines())) <= columns
    plain = tables("--model", "gemma-3-27b", "--measure", "0B", env={**ENV, "COLUMNS": "80"}).stdout
    assert plain.count("tokens  ") <= 2 and "20.8 GiB*" in plain


def test_units_are_named_and_never_mixed(config_json):
    args = ["--model", config_json(), "--variants", "contiguous/f16", "--lengths", "100000"]
    assert "48.8 MiB" in tables(*args).stdout and "51.2 MB" in tables(*args, "--units", "decimal").stdout
    fit = lambda budget: int(csv_table(*args, "--budget", budget, "--weights", "0B")[0]["seq_len"])
    assert (fit("1MiB"), fit("1MB")) == (2048, 1953)  # 512 bytes a token
    text = tables(*args, "--budget", "1MB", "--weights", "500kB").stdout
    assert "1MB (977 KiB)" in text and "500kB (488 KiB)" in text and "488 KiB remain" in text


def test_a_budget_says_the_longest_context_and_the_largest_batch(config_json):
    model = config_json(model_type="mistral", num_parameters=1000, torch_dtype="float16", sliding_window=256)
    args = ["--model", model, "--variants", "contiguous/f16; contiguous/q4_0(k_mean=removed)", "--lengths", "100,10000", "--batch", 2]
    rows = {(row["variant"], row["asked"], row["seq_len"] if "batch" in row["asked"] else ""): row
            for row in csv_table(*args, "--budget", f"{2000 + 10 * 256 * 512}B")}
    f16 = lambda *key: rows["contiguous/f16", *key]
    # The window bounds a sequence, so any context fits, and ten sequences however long.
    assert f16("longest_context", "")["status"] == "unbounded"
    assert (f16("largest_batch", "10000")["batch"], f16("largest_batch", "100")["batch"]) == ("10", "25")
    assert f16("largest_batch", "10000")["bytes"] == str(10 * 256 * 512) and f16("largest_batch", "100")["weights_bytes"] == "2000"
    meanless = rows["contiguous/q4_0(k_mean=removed)", "longest_context", ""]
    assert (meanless["seq_len"], meanless["status"]) == ("256", "fits") and "window" in meanless["reason"]
    assert rows["contiguous/q4_0(k_mean=removed)", "largest_batch", "10000"]["status"] == "none"
    unknown = csv_table("--model", config_json(), "--variants", "contiguous", "--budget", "1MB")
    assert {row["weights_bytes"] for row in unknown} == {""}
    assert "not counted" in tables("--model", config_json(), "--variants", "contiguous", "--budget", "1MB").stdout
    small = tables("--budget", "16GB").stdout  # llama-3-8b's weights alone are 16.06 GB
    assert "nothing remains" in small


def test_a_budget_of_disk_bounds_what_tiers_put_there(config_json):
    # 512 bytes a token in two layers; chunks of 512 rows. Memory holds 2048 + 2048 rows and a chunk in part.
    args = ["--model", config_json(), "--variants", "contiguous/f16; tiered(hot=2048,warm=2048)/f16", "--lengths", "8192",
            "--budget", "10MiB", "--weights", "0B"]
    rows = {(row["variant"], row["asked"]): row for row in csv_table(*args, "--disk", "4MiB")}
    longest = rows["tiered(hot=2048,warm=2048)/f16", "longest_context"]
    # Eight chunks a layer in files, and the next one moves with its last row.
    assert (longest["seq_len"], longest["status"]) == (str(8192 + 4096 + 511), "fits")
    assert [longest[f"bytes_{tier}"] for tier in ("hot", "warm", "disk")] == [str(2560 * 512), str(2048 * 512), str(8192 * 512)]
    assert longest["disk_budget_bytes"] == str(4 << 20)
    assert rows["contiguous/f16", "longest_context"]["seq_len"] == str(20 * 1024)
    assert rows["contiguous/f16", "longest_context"]["bytes_disk"] == "0"
    unbounded = {row["variant"]: row for row in csv_table(*args) if row["asked"] == "longest_context"}
    assert unbounded["tiered(hot=2048,warm=2048)/f16"]["status"] == "unbounded"
    text = tables(*args, "--disk", "4MiB").stdout
    assert "10MiB of memory and 4MiB of disk" in text and "on disk" in text and "4.00 MiB" in text


def test_weights_are_computed_from_a_whole_config(config_json):
    # Llama's layers: attention with 4 and 2 heads of 32, a gated MLP and two norms; embeddings and the head apart.
    facts = dict(hidden_size=64, vocab_size=100, intermediate_size=96, torch_dtype="bfloat16")
    parameters = 2 * 100 * 64 + 2 * (64 * 32 * (2 * 4 + 2 * 2) + 3 * 64 * 96 + 2 * 64) + 64
    args = ["--variants", "contiguous/f16", "--lengths", "100", "--budget", "1MB"]
    sources = lambda model, *more: {(row["weights_bytes"], row["weights_from"]) for row in csv_table("--model", model, *args, *more)}
    assert sources(config_json(**facts)) == {(str(2 * parameters), "computed")}
    assert sources(config_json(**facts), "--weights", "5kB") == {("5000", "given")}
    assert sources(config_json(**facts, num_parameters=7)) == {("14", "stated")}
    assert sources(config_json()) == {("", "")}
    text = " ".join(tables("--model", config_json(**facts), *args).stdout.split())
    assert f"({parameters:,} parameters in bfloat16, computed from its config.json)" in text


def test_lengths_end_with_the_tokens_that_the_model_was_trained_for(config_json):
    def lengths(trained, *more):
        facts = {"max_position_embeddings": trained} if trained else {}
        rows = csv_table("--model", config_json(**facts), "--variants", "contiguous/f16", "--measure", "0B", *more)
        return list(dict.fromkeys(int(row["seq_len"]) for row in rows if row.get("asked") != "longest_context"))

    assert lengths(None) == [1024 << i for i in range(8)]
    assert lengths(5000) == [1024, 2048, 4096, 5000] and lengths(512) == [512]
    assert lengths(262144)[-2:] == [131072, 262144]
    budget = ["--budget", "1GB", "--weights", "0B"]
    assert lengths(8192, *budget) == [2048, 8192] and lengths(1024, *budget) == [1024]
    assert lengths(8192, "--lengths", "16384") == [16384]
    text = lambda *args: tables("--model", config_json(max_position_embeddings=8192), "--measure", "0B", *args).stdout
    assert "Ends with the 8192 tokens that the model was trained for" in text()
    assert "Goes beyond the 8192 tokens" in text("--lengths", "8192..16384")
    assert "trained for, " not in text("--lengths", "1024") and "Ends with" not in text("--lengths", "1024")
    fits = text("--variants", "contiguous/f16", "--budget", "8MiB", "--weights", "0B")
    assert re.search(r"^contiguous/f16 +16,384\+ ", fits, re.M) and "+ more than the 8,192 tokens" in fits


@pytest.mark.parametrize("model", ["llama-3-8b", "gemma-3-27b"])
def test_the_usual_variants_are_one_table_in_80_columns(model):
    text = tables("--model", model, "--measure", "0B", env={**ENV, "COLUMNS": "80"}).stdout
    assert len(re.findall(r"^tokens ", text, re.M)) == 1
    assert "All caches are contiguous." in " ".join(text.split())
    budget = tables("--model", model, "--budget", "80GiB", env={**ENV, "COLUMNS": "80"}).stdout
    assert len(re.findall(r"^variant ", budget, re.M)) == 1 and re.search(r"^f16/ring\(window=4096\) ", budget, re.M)
    mixed = tables("--model", model, "--measure", "0B", "--variants", "contiguous/f16;paged/f16").stdout
    assert "All caches are" not in mixed and re.search("contiguous +paged", mixed)


@pytest.mark.parametrize("command", [("tables", "--lengths", "100"), ("plan", "--memory", "4GB", "--context", "100", "--users", "1")])
def test_models_of_packages_have_tables(command):
    for name, package in json.loads((HOME / "harness/model/model_packages.json").read_text()).items():
        assert name in succeeded(kvlab(*command, "--model", name)).stdout
        assert json.loads((HOME / f"configs/models/{name}.json").read_text())["num_parameters"] == package["parameters"]


def test_the_listing_has_every_model():
    listed = kvlab("list", "--models").stdout
    for path in (HOME / "configs" / "models").glob("*.json"):
        assert re.search(rf"^{re.escape(path.stem)} +\d", listed, re.M), path.stem
    assert re.search(r"^llama-2-7b +32 +32 +128 .* 6738415616 +4\.00 GiB$", listed, re.M)


def test_tables_overwrite_nothing(tmp_path):
    (tmp_path / "t.csv").write_text("mine")
    assert_refused(tables("--measure", "0B", "--out", tmp_path / "t.csv"), "t.csv", "already")
    assert (tmp_path / "t.csv").read_text() == "mine"


@pytest.mark.parametrize("command", [("tables", "--lengths", "100"), ("plan", "--memory", "1GB", "--context", "100", "--users", "1")])
def test_a_config_json_can_be_trusted(config_json, command):
    model = config_json(model_type="new_thing", index_head_dim=128, num_parameters=1000, torch_dtype="float16")
    assert_refused(kvlab(*command, "--model", model), "new_thing", "--trust-config")
    text = kvlab(*command, "--model", model, "--trust-config").stdout
    assert "'index_head_dim' is not read" in " ".join(text.split())


def test_a_run_takes_specs_of_layers(config, tmp_path):
    both = ["contiguous/f16 + 0,2:contiguous/f16/ring(window=16)", "contiguous/f16"]
    settings = {"model.layers": 3, "sweep.variants": both, "experiment": "decode", "sweep.seq_len": [64]}
    layered, alike = by_variant(cells_of(config, tmp_path / "out", settings)).values()
    assert [layered["variant"], alike["variant"]] == both
    assert (layered["status"], layered["keeps_all"], layered["eviction_check"]) == ("ok", "0", "fp64")
    assert int(alike["bytes_payload"]) * (64 + 2 * 16) == int(layered["bytes_payload"]) * 3 * 64
    assert (layered["kept_tokens"], alike["kept_tokens"]) == ("32", "64")


def test_a_run_takes_latent_rows_where_it_can(config, tmp_path):
    mla = {"model": '{preset="deepseek-v2-lite"}', "sweep.variants": ["contiguous/f16", "contiguous/q8_0"]}
    rows = cells_of(config, tmp_path / "out", mla, {"sweep.seq_len": [128], "experiment": "decode"})
    assert {row["status"] for row in rows} == {"ok"} and {row["head_dim"] for row in rows} == {"576"}
    f16, q8_0 = by_variant(rows).values()
    assert int(f16["bytes_payload"]) == 128 * 576 * 2 * int(f16["layers"])
    assert 0 < float(q8_0["err_rel_l2"]) < 0.02
    assert_refused(run(config, tmp_path / "no", mla, {"sweep.kv_heads": [4]}), "set both kv_heads and head_dim")
