"""Each chart draws the numbers of the CSV files, which are read here by other means than plots/ has.

Every layer of every specification is turned back into points: the values of its rows in the fields that
its channels name. A chart's contract says which values of which rows of the files these have to be.
"""

import re
from collections import defaultdict
from statistics import median

import altair as alt
import polars as pl
import pytest
from drawn import BASELINE, HELPERS, UNITS, drawn, each, layers, places, points, title, value
from figures.batch import cost_of_padding
from figures.list import FIGURES
from pictures import to_svg
from synthetic import in_words

# A contract: which rows, and what of them is drawn, a line a layer: MARKS: CHANNELS = VALUES, expressions over a row's columns. VALUES may be
# of several layers (|), or of some rows (where). `~`: once where several rows agree; `>=`: among others.
KINDS = {"payload": "bytes_payload", "metadata": "bytes_metadata", "slack": "bytes_slack"}
LINES = "line point: color x y = variant, seq_len, {0}_p50_us\nrule: color x y y2 = variant, seq_len, {0}_ci_low_us, {0}_ci_high_us\n"


def swept(rows):
    """The rows of variants with a block: `line` is what is left of the name without it."""
    return [row | {"line": re.sub(r"block=\d+,?", "", row["variant"]).replace("()", ""), "block": int(found[1])} for row in rows
            if (found := re.search(r"block=(\d+)", row["variant"]))]  # fmt: skip


def of_baseline(rows):
    return [row for row in rows if row["variant"] == BASELINE]


def steps(files):
    """A row a variant and token of the longest growth runs: its times, one a repetition, and beside each the median of nine around it."""
    runs, found = defaultdict(dict), defaultdict(lambda: {"times": [], "around": []})
    grown = files.side("growth.csv")
    longest = max(row["seq_len"] for row in grown)
    for row in grown:
        if row["seq_len"] == longest:
            runs[row["variant"], row["repetition"]][row["token"]] = row["step_us"]
    for (variant, _), times in runs.items():
        for token, time in times.items():
            found[variant, token]["times"].append(time)
            found[variant, token]["around"].append(median(times[at] for at in range(int(token) - 4, int(token) + 5) if at in times))
    for (variant, token), row in found.items():
        far = token > 4 and all(time >= 2 * around for time, around in zip(*row.values()))
        yield row | {"variant": variant, "token": token, "far": far}


def totals(files):
    """The steps of growth.csv, summed here: a row a variant and length, with a sum a repetition."""
    sums = defaultdict(lambda: defaultdict(float))
    for row in files.side("growth.csv"):
        sums[row["variant"], row["seq_len"]][row["repetition"]] += row["append_us"] + row["view_us"]
    return [{"variant": variant, "seq_len": length, "sums": list(own.values())} for (variant, length), own in sums.items()]


SHARES = {90: "90 % and more", 70: "70–90 %", 50: "50–70 %", 30: "30–50 %", 0: "below 30 %"}
TIMES = {1.25: "1.25 and more", 1.03: "1.03–1.25", 0.97: "0.97–1.03", 0.8: "0.8–0.97", 0.55: "0.55–0.8", 0: "below 0.55"}


def heat(files):
    """Cells at a temperature: hot ones only where the read bandwidth says that the rows are cache-resident."""
    for row in files.with_growth():
        tokens = row["seq_len"]
        length = f"{tokens / 1024:.0f}K" if tokens % 1024 == 0 else f"{tokens:.0f}"
        place = {"column": f"{length} · {row['threads']:.0f}t"}
        shape = f"{row['q_heads']:.0f}/{row['kv_heads']:.0f} heads of {row['head_dim']:.0f}"
        resident = row["ceiling_gbps"] and row["ceiling_gbps"] >= 1.3 * row["cold_ceiling_gbps"]
        for at, prefix in (("cold", "cold_"), ("hot", "")) if resident else (("cold", "cold_"),):
            if row["cold_ceiling_share"] is not None:
                read, share, over, bound = (row[prefix + name] for name in ("ceiling_share", "bound_share", "ratio_p50", "bound"))
                share = read if share is None else share
                ends = [row[f"cold_ci_{end}_us"] if prefix else None for end in ("high", "low")]
                ends = [f"{read * row['cold_attend_p50_us'] / end:.1%}" if end else "–" for end in ends]
                small = f"({round(100 * read)})" if bound == "compute" else ""
                kind = "" if over is None else next(name for least, name in TIMES.items() if round(over, 2) >= least)
                yield row | place | {"panel": f"{shape} · {at}", "share": share, "over": over, "ends": ends, "small": small, "kind": kind,
                                     "bound": f"{bound} · {next(name for least, name in SHARES.items() if round(100 * share) >= least)}"}  # fmt: skip


def heads(files):
    """The heads of an eval, once for all variants of one error: in the synthetic run they have all."""
    same = defaultdict(list)
    for row in files.of("eval"):
        same[row["err_rel_l2"]].append(row["variant"])
    assert sorted(map(len, same.values())) == [1, 1, 4]
    for row in files.side("heads.csv"):
        own = same[row["cell_err_rel_l2"]]
        if row["variant"] == min(own):
            more = f" +{len(own) - 1}" if own[1:] else ""
            yield row | {"panel": f"{in_words(row['variant'])}{more}: {row['cell_err_rel_l2']:.2g}", "times": row["err_rel_l2"] / row["cell_err_rel_l2"]}


def evals(files):
    of_heads = defaultdict(list)
    for row in files.side("heads.csv"):
        of_heads[row["cell"]].append(row["err_rel_l2"])
    return [row | {"heads": of_heads[row["cell"]]} for row in places(files.of("eval"), "0", "held_bytes_per_token / 1024", "err_rel_l2")]


def of_tiers(files):
    reads = lambda row, *tiers: sum(row[f"read_{tier}_bytes"] / row[f"{tier}_ceiling_gbps"] / 1e3 for tier in tiers if row[f"read_{tier}_bytes"]) or None
    return [row | {"memory_us": reads(row, "hot", "warm"), "disk_us": reads(row, "disk")} for row in files.of("decode") if row["bytes_warm"] is not None]


def predicted(files, column):
    """The cells of a text whose predictions differ from the full cache's, on the front of bytes and the column."""
    rows = [row for row in files.of("quality") if row["kl_mean"]]
    return places(rows, "seq_len", "held_bytes_per_token", column, f"{column}_ci_low", f"{column}_ci_high")


def dropping(files):
    rows = files.of("recall")
    series = {row["series"] for row in rows if row["kept_tokens"] < row["seq_len"]}
    return [row for row in rows if row["series"] in series]


def moments(files):
    """The stretches of the machine on which most requests wait; bytes are stacked upwards."""
    worst = max(files.of("replay"), key=lambda row: row["waiting_p99"])["machine"]
    for row in files.side("replay.csv"):
        below = 0
        for kind in ("payload", "other", "cached", "slack") if row["machine"] == worst else ():
            yield row | {"kind": kind, "low": below, "high": below + row[f"{kind}_bytes"]}
            below += row[f"{kind}_bytes"]


def used(files):
    """Without the tasks that the full cache fails. A column a length and depth."""
    length = {512: "512", 1024: "1K"}
    return [row | {"place": f"{length[row['seq_len']]}, {row['depth']:g} %"} for row in files.of("task") if row["usable"] == "yes"]


FRONT = """line point: color x y = series, x, y
    circle: fill x y = place, x, y
    line: x y >= x, y where front\n"""
SERVED = """title x: {title}
    point: y color x = variant, str({arm}).removesuffix('.0'), {column}
    rule: y color x x2 = variant, str({arm}).removesuffix('.0'), {column}_ci_low, {column}_ci_high"""
LOSSES = """title y: loss on the second copy [nats]
    line point: color x y = series, {0}, loss
    rule: color x y y2 = series, {0}, loss - 1.96 * loss_se, loss + 1.96 * loss_se"""
CHARTS = {
    "memory": (lambda f: [row for row in f.common() if row["bytes_payload"]], """title y: peak memory, 2 layers of 32
        line point: color x y ~ variant, seq_len, peak_bytes"""),
    "bytes": (lambda f: each(f.common(), kind=KINDS | {"workspace peak": "bytes_workspace_peak"}), """title x: bytes per cached token, 2 layers of 32 [{unit}]
        bar: y color x ~ variant, kind, value / seq_len / batch / unit where value"""),
    "latency": (lambda f: f.common(), "title y: step, p50 [µs]\n" + LINES.format("step") +
        "area: fill x y y2 = variant, seq_len, step_ci_low_us, step_ci_high_us where step_p50_us"),
    "ratio": (lambda f: f.common(), """title x: time / contiguous f32
        point: y x color = variant, ratio_p50, verdict
        rule: y x x2 = variant, ratio_ci_low, ratio_ci_high where ratio_p50
        text: y text = variant, f"{sized((bytes_payload + bytes_metadata + bytes_slack) / batch)} · error {err_rel_l2:.1e}" where ratio_p50"""),
    "parameter_time": (lambda f: swept(f.common()), """title x: block of paged\ntitle y: step, p50 [µs]
        line point: color x y = line, block, step_p50_us
        rule: color x y y2 = line, block, step_ci_low_us, step_ci_high_us""", lambda f: of_baseline(f.common()), "rule: y >= step_p50_us"),
    "parameter_memory": (lambda f: swept(f.common()), """title y: peak memory, 2 layers of 32
        line point: color x y = line, block, peak_bytes""", lambda f: of_baseline(f.common()), "rule: y ~ peak_bytes"),
    "parameter_growth": (lambda f: swept(f.of("growth")), """title y: all appends [µs]
        line point: color x y = line, block, append_total_us
        rule: color x y y2 = line, block, append_total_ci_low_us, append_total_ci_high_us""",
        lambda f: of_baseline(f.of("growth")), "rule: y >= append_total_us"),
    "growth": (steps, """title y: time of one step [µs]
        line: color x y = variant, token, median(times)
        area: fill x y y2 = variant, token, min(times), max(times)
        point: color x y = variant, token, median(times) where far"""),
    "reallocations": (steps, """title y: time of one step [µs]
        point: color x y = variant, token, median(times) where far
        rule: color x y y2 = variant, token, median(around), median(times) where far"""),
    "growth_total": (totals, """title y: all appends [µs]
        line point: color x y = variant, seq_len, median(sums)
        rule: color x y y2 = variant, seq_len, min(sums), max(sums)"""),
    "pareto": (lambda f: places(f.common(), "(experiment, seq_len)", "(bytes_payload + bytes_metadata + bytes_slack) / batch / seq_len / 1024", "floor(err_rel_l2)"),
        """title x: bytes held per token, 2 layers of 32 [KiB]\ntitle y: relative L2 error of the output
        point: stroke x y fill = variant, x, y, step_p50_us
        point: shape x y fill = variant, x, y, step_p50_us
        line: x y ~ x, y where front"""),
    "bandwidth": (lambda f: each(f.common(), temperature={"hot cache": "ceiling_share", "cold cache": "cold_ceiling_share"}),
        """title y: % of measured read bandwidth
        data: variant seq_len share_text temperature = variant, seq_len, f'{value:.1%}', temperature
        line point: color x y = variant, seq_len, min(value, 1)"""),
    # A share's interval is that of the time, the other way round.
    "kernels": (heat, """data: variant column panel label kind small = variant, column, panel, str(round(100 * share)), bound, small
        data: variant column panel low_text high_text = variant, column, panel, *ends
        rect: y x = variant, column
        text: y x text >= variant, column, str(round(100 * share))"""),
    "kernels_ratio": (heat, """data: variant column panel label kind = variant, column, panel, f'{over:.2f}', kind
        rect: y x = variant, column where over
        text: y x text >= variant, column, f'{over:.2f}'"""),
    "budget": (lambda f: places(f.of("budget"), "workload", "held_bytes_per_token / 1024", "floor(err_rel_l2)", "err_ci_low", "err_ci_high"),
        "title x: bytes held per input token, all layers [KiB]\ntitle y: relative L2 error of the output, mean\n" + FRONT +
        "rule: color x y y2 = series, x, err_ci_low, err_ci_high"),
    "eval_error": (evals, """title x: bytes held per input token, all layers [KiB]\ntitle y: relative L2 error of the output
        point: shape x y = variant, x, y
        rule: color x y y2 = variant, x, min(heads), max(heads)
        line: x y = x, y where front"""),
    "eval_heads": (heads, """data: panel layer q_head times = panel, layer, q_head, times
        rect: y x color = layer, q_head, times"""),
    "checkpoint": (lambda f: each(f.of("checkpoint"), operation={"save": "save_p50_us", "load": "load_p50_us", "snapshot": "freeze_p50_us",
        "restore": "unfreeze_p50_us", "fork": "fork_p50_us"}), """title x: time of one sequence, p50 [µs]
        data: variant panel seq_len time = variant, operation, seq_len, value
        point: y color x = variant, seq_len, value
        line: y detail x = variant, variant, value"""),
    "prefill_workspace": (lambda f: f.of("prefill"), """title y: peak workspace
        line point: color x y = arm_of(arm, chunk_tokens), seq_len, bytes_workspace_peak"""),
    "prefill_time": (lambda f: f.of("prefill"), """title y: prompt, p50 [µs]
        line point: color x y = arm_of(arm, chunk_tokens), seq_len, prefill_p50_us
        rule: x y y2 = seq_len, prefill_ci_low_us, prefill_ci_high_us"""),
    "batch_waste": (lambda f: each(f.of("batch"), kind=KINDS), """title x: bytes held / bytes of payload
        data: panel variant kind times_payload = f'lengths {lengths}, batch {batch:.0f}', variant, kind, value / bytes_payload where value
        bar: y color x = variant, kind, value / bytes_payload where value"""),
    "model_rate": (lambda f: f.of("model"), """title y: tokens per second
        point: color x y = variant, seq_len, tokens_per_s
        line: color x y = variant, seq_len, tokens_per_s | variant, seq_len, batch / step_bound_us * 1e6
        rule: color x y y2 = variant, seq_len, tokens_per_s_ci_low, tokens_per_s_ci_high"""),
    "model_split": (lambda f: each(f.of("model"), part={"projections": "projections_p50_us", "the rest": "rest_p50_us", "attention": "attend_p50_us",
        "append and view": "append_p50_us view_p50_us", "linear states": "state_p50_us"}), """title x: time of a step [ms]
        bar: y color x = variant, part, value / 1000
        tick: y x = variant, step_bound_us / 1000"""),
    "peers": (lambda f: each(f.of("decode"), state={"hot": "peer_ratio_p50", "cold": "peer_cold_ratio_p50"}),
        """title x: step time / kvlab's with the same bits
        point: y color x = variant, state, value
        rule: y color x x2 = variant, state, *((peer_ratio_ci_low, peer_ratio_ci_high) if state == 'hot' else (peer_cold_ratio_ci_low, peer_cold_ratio_ci_high))"""),
    "tier_time": (of_tiers, """title y: time of attention, p50 [µs]
        point: color x y = variant, seq_len, attend_p50_us
        line: color x y = variant, seq_len, attend_p50_us | variant, seq_len, memory_us | variant, seq_len, disk_us"""),
    "tier_bytes": (lambda f: each(of_tiers(f), tier={tier: f"bytes_{tier}" for tier in ("hot", "warm", "disk")}), """title x: held [{unit}]
        bar: y color x = variant, tier, value / unit where value"""),
    "tier_hidden": (of_tiers, """title y: share of reading that is hidden
        line point: color x y = variant, seq_len, disk_hidden_share"""),
    "quality_kl": (lambda f: predicted(f, "kl_mean"), "title x: bytes held per input token, all layers\n"
        "title y: KL(full f32 cache || variant), mean [nats]\n" + FRONT + "rule: color x y y2 = series, x, kl_mean_ci_low, kl_mean_ci_high"),
    "quality_loss": (lambda f: predicted(f, "loss_change"), "title y: change of the mean loss [nats]\n" + FRONT +
        "rule: color x y y2 = series, x, loss_change_ci_low, loss_change_ci_high"),
    # In the middle of a bucket on a log axis, the first of which begins at 4.
    "kl_position": (lambda f: [row | {"x": (max(row["position_first"], 4) * (row["position_last"] + 1)) ** 0.5} for row in f.side("positions.csv") if row["kl_mean"]],
        """title y: KL(full f32 cache || variant), mean [nats]
        line point: color x y = series, x, kl_mean
        area: fill x y y2 = series, x, kl_mean_ci_low, kl_mean_ci_high"""),
    "quality_read": (lambda f: places([row for row in f.of("quality", "recall") if row["bytes_read"]], "(experiment, distance)", "bytes_read / batch / 1024", "loss_change"),
        """title x: bytes that a step reads, all layers [KiB]\ntitle y: change of the mean loss [nats]
        point: color x y = series, x, y
        data: variant per_token error alike = series, x, y, verdict != 'worse'
        rule: color x y y2 = series, x, loss_change_ci_low, loss_change_ci_high
        line: x y >= x, y where front"""),
    # A panel a task, without the baseline itself; what is ambiguous is grey.
    "loss_baseline": (lambda f: [row | {"told": row["verdict"].replace("ambiguous", "statistically tied")} for row in f.of("quality", "recall")
        if row["versus"] and row["verdict"] != "baseline"], """title x: loss minus the baseline's [nats]
        point: y x color = variant, loss_change, told
        rule: y x x2 color = variant, loss_change_ci_low, loss_change_ci_high, told
        text: y text = variant, f'{held_bytes_per_token:.0f} B · KL {kl_mean:.2g}'
        data: panel called = ('recall 300 tokens back' if distance else '1,024 tokens of text') + ' · compared with contiguous f16 snapkv(budget=96)', variant"""),
    "recall": (lambda f: f.of("recall"), LOSSES.format("distance")),
    "recall_budget": (dropping, LOSSES.format("kept_tokens"), lambda f: f.of("recall"), "rule: y >= loss where verdict == 'baseline'"),
    "stream": (lambda f: [row for row in f.side("positions.csv") if row["experiment"] == "stream"], """title y: perplexity since the previous point
        line point: color x y = variant, position_last + 1, exp(loss)
        area: fill x y y2 = variant, position_last + 1, exp(loss - 1.96 * loss_se), exp(loss + 1.96 * loss_se)""", lambda f: f.of("stream"), "rule: x ~ trained_tokens"),
    # Caches with a codec in all layers are in no panel of K or V.
    "sensitivity_layers": (lambda f: [row for row in f.of("sensitivity") if row["sensitive_layer"] is not None], """title y: layer
        rect: y x color = sensitive_layer, sensitive_format, kl_mean
        data: panel sensitive_layer kl_mean = sensitive_side, sensitive_layer, kl_mean"""),
    "sensitivity_sum": (lambda f: f.of("sensitivity"), """title x: sum of the KL of each layer's K and V alone [nats]
        point: x y color = predicted_kl, kl_mean, 'random codecs' if sensitive_format == 'mixture' else 'one codec'
        line: x y = predicted_kl, predicted_kl
        rule: x y y2 = predicted_kl, kl_mean_ci_low, kl_mean_ci_high"""),
    "task_depth": (used, """rect: y x color = variant, place, accuracy
        text: y x text = variant, place, f'{right:.0f}/{batch:.0f}'"""),
    "task_bytes": (used, """title x: bytes held per input token, all layers
        line point: color x y = series, held_bytes_per_token, accuracy
        rule: color x y y2 = series, held_bytes_per_token, accuracy_ci_low, accuracy_ci_high
        data: panel spec seq_len = f'single · question after compression · depth {depth:g} %', variant, seq_len"""),
    "replay_requests": (lambda f: each(moments(f), what={"running": "running", "waiting": "waiting"}), """title y: requests
        line: color x y = what, time_s, value where kind == 'payload'
        data: variant kind time_s requests = variant, what, time_s, value where kind == 'payload'"""),
    "replay_memory": (moments, """title y: held [{unit}]
        area: color x y y2 = kind, time_s, low / unit, high / unit"""),
    "replay_concurrency": (lambda f: f.of("replay"), """title x: sequences that run at once
        bar: y x = variant, running_p50
        tick: y x = variant, running_p99
        point: y x = variant, running_peak"""),
    "hit_rate": (lambda f: each(f.side("hits.csv"), kind={"least recently used": "hit_rate", "Belady's optimum": "belady_hit_rate", "without limit": "hit_rate_at_any"}),
        """title y: blocks found / blocks of prompts
        line: color x y = kind, capacity_bytes, value where variant == 'contiguous/f16/full'"""),
    "serve_ttft": (lambda f: f.of("serve"), SERVED.format(title="p99 time to the first token [s]", arm="batching", column="ttft_p99_s")),
    "serve_tpot": (lambda f: f.of("serve"), SERVED.format(title="p99 time per token after the first [ms]", arm="batching", column="tpot_p99_ms")),
    "acceptance": (lambda f: f.of("speculate"), SERVED.format(title="share of proposed tokens that are accepted", arm="proposed_tokens", column="acceptance")),
    "serve_held": (lambda f: each(f.of("serve"), kind={kind: f"{kind}_mean_bytes" for kind in ("payload", "other", "cached", "slack")}),
        """title x: held per running request [{unit}]
        bar: y color x = f"{words(variant)}, batching {str(batching).removesuffix('.0')}", kind, value / running_mean / unit"""),
}  # fmt: skip


def arm_of(arm, tokens):
    return arm if tokens is None else f"{arm.replace('_', ' ')} by {tokens:.0f} tokens"


def sized(bytes):
    name, size = next((name, size) for name, size in reversed(UNITS.items()) if bytes >= size)
    return f"{bytes / size:{'.3g' if bytes < 1000 * size else '.0f'}} {name}"


HELPERS.update(arm_of=arm_of, sized=sized)


def check(spec, files, rows_of, lines):
    """Holds the chart against one part of its contract; returns the layers that it speaks of, as (mark, channels)."""
    spoken = set()
    rows = list(rows_of(files))
    for line in lines.strip().splitlines():
        kind, _, said = line.strip().partition(": ")
        if kind.startswith("title"):
            found = title(spec, kind.split()[1])
            unit = re.search(r"\[(\w+)\]$", found)
            assert found == said.replace("{unit}", unit[1] if unit else ""), line
            rows = [row | {"unit": UNITS.get(unit[1] if unit else "", 1)} for row in rows]
            continue
        channels, sign, values = re.fullmatch(r"([\w ]+) (=|~|>=) (.*)", said).groups()
        values, _, where = values.partition(" where ")
        wanted = points(value(f"({one},)", row) for one in values.split(" | ") for row in rows if value(where or "True", row))
        for mark in kind.split():
            shown = drawn(spec, mark, *channels.split())
            assert wanted, line
            assert {"=": shown == wanted, "~": set(shown) == set(wanted), ">=": set(shown) >= set(wanted)}[sign], (line, shown - wanted, wanted - shown)
            spoken.add((mark, *channels.split()))
    return spoken


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES if figure.name != "break_even"])  # titles_test
def test_a_chart_draws_what_the_files_say(charts, name):
    assert name in CHARTS, "write its contract above: what the chart has to draw, read from the CSV files"
    spec, files = charts[name]
    alt.Root.validate(spec)  # report.py saves the time of looking
    assert to_svg(spec).startswith("<svg")
    contract = CHARTS[name]
    spoken = set().union(*(check(spec, files, *part) for part in zip(contract[::2], contract[1::2])))
    for mark, encoding, filters in layers(spec):
        of_data = {channel for channel in ("x", "y", "x2", "y2") if encoding.get(channel, {}).get("field", "label_at") != "label_at"}
        held = any(mark == own and of_data <= set(channels) for own, *channels in spoken)
        assert held or not of_data or mark == "text" or "datum.reference && datum.variant == beside" in filters, f"no line of the contract is about {mark} with {of_data}"


def test_what_is_tied_with_the_full_cache_is_filled(charts):
    marks = [layer["mark"] | {"of": layer["transform"][0]["filter"]} for layer in charts["quality_read"][0]["spec"]["layer"] if layer["mark"]["type"] == "point"]
    assert {mark["of"]: mark.get("filled", False) for mark in marks} == {"datum.alike": True, "!datum.alike": False}


def test_the_columns_of_tasks_are_in_order(charts):
    spec, files = charts["task_depth"]
    in_order = sorted({(row["seq_len"], row["depth"], row["place"]) for row in used(files)})
    assert spec["layer"][0]["encoding"]["x"]["sort"] == [name for _, _, name in in_order]


def test_a_batchs_title_is_the_largest_cost_of_padding():
    cells = [
        {"variant": variant, "lengths": lengths, "ratio_p50": ratio, "ratio_ci_low": low, "ratio_ci_high": high, "masked_share": share}
        for variant, lengths, ratio, low, high, share in (
            ("contiguous", "16,500", 9.0, 8.0, 10.0, None), ("unpadded", "16,500", 12.0, 11.0, 13.0, None),
            ("padded", "16,500", 1.84, 1.8, 1.9, 0.484), ("padded", "zipf(16,64)", 2.62, 2.5, 2.75, 0.613),
        )
    ]  # fmt: skip
    said = cost_of_padding(pl.DataFrame(cells))
    assert all(number in said for number in ("2.6 times (2.5–2.8) as long", "61% of its tokens", "(lengths zipf(16,64))")), said
    assert cost_of_padding(pl.DataFrame(cells[:2])) is None
    assert cost_of_padding(pl.DataFrame({"variant": ["contiguous"]})) is None, "a folder of an earlier version"
