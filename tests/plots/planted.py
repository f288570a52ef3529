"""The values that a synthetic folder plants in the cells of each experiment: the values of its axes, and the effects that charts and titles tell.

An entry of PLANTED yields (variant, length, planted columns); synthetic.py fills in the rest.
"""

import math

from synthetic import F16, F32, Q8, ROW, SHAPE, cell

PLANTED = {}


def plants(function):
    PLANTED[function.__name__] = function


def planted_cells(name: str, workload: str, lengths) -> list[dict]:
    made = PLANTED.get(name, unknown)(lengths)
    return [cell(planted.pop("experiment", name), variant, length, **{"workload": workload, **planted}) for variant, length, planted in made]


def unknown(lengths):
    """An experiment without a table."""
    return [(variant, length, {}) for variant in (F32, F16) for length in (256, 512)]


@plants
def budget(lengths):
    """Two policies over four budgets, and codecs. q8_0, fp8 and mxfp8 are equally large: fp8's interval says that mxfp8 lies behind; the
    last may be as good."""
    for policy, error in (("tova", 0.1), ("random", 1)):
        for kept in (64, 128, 256, 512):
            yield f"contiguous/f32/{policy}(budget={kept})", 1024, {
                "series": f"contiguous/f32/{policy}(budget={{budget}})", "held_bytes_per_token": kept, "kept_tokens": kept,
                **{f"err_{end}": error * factor / kept for end, factor in (("rel_l2", 8), ("ci_low", 7), ("ci_high", 9))}}  # fmt: skip
    for codec, held, error, low, high in (
        ("f16", 512, 4e-4, None, None), ("q8_0", 136, 6.4e-3, 5e-3, 9e-3), ("fp8", 136, 6.5e-3, 6.4e-3, 6.6e-3),
        ("mxfp8", 136, 7.5e-3, 7e-3, 8e-3), ("token", 140, 6.9e-3, 6.5e-3, 7.2e-3),
    ):  # fmt: skip
        yield f"contiguous/{codec}/full", 1024, {
            "held_bytes_per_token": held, "kept_tokens": 1024, "err_rel_l2": error, "err_ci_low": low, "err_ci_high": high}  # fmt: skip


@plants
def checkpoint(lengths):
    return [(variant, length, {"fork_p50_us": fork * length}) for variant, fork in ((F32, 0.5), ("concat/f32/full", 0.01)) for length in lengths]


@plants
def prefill(lengths):
    arms = (("materialised", ""), ("materialised_chunked", 64), ("chunked", 64), ("chunked", 128), ("tiled", ""))
    return [
        (F32, length, {"phase": "prefill", "arm": arm, "chunk_tokens": chunk, "bytes_workspace_peak": length * (chunk or 90)})
        for length in (256, 512) for arm, chunk in arms
    ]  # fmt: skip


@plants
def batch(lengths):
    return [(F32, length, {"lengths": own, "waste_share": waste, "bytes_metadata": 50, "bytes_slack": 1000 * waste, "step_p50_us": 5})
            for length, own, waste in ((500, "16,32,500", 0.5), (512, "uniform(16,512)", 0.25))]  # fmt: skip


@plants
def model(lengths):
    """Weights that take 100 µs, and caches that overtake them as the context grows; the append takes 2 µs."""
    for variant, per_token in ((F32, 0.1), (F16, 0.05)):
        for many in (1, 4):
            for length in (256, 1024, 4096):
                attend = per_token * length * many
                step = 120 + attend
                compared = {"verdict": "baseline"} if variant == F32 else {"verdict": "faster", "versus": F32, "ratio_p50": 0.7, "ratio_ci_low": 0.6, "ratio_ci_high": 0.8}
                yield variant, length, {
                    "workload": "model", "batch": many, "step_p50_us": step, "append_p50_us": 1.5, "view_p50_us": 0.5, "attend_p50_us": attend,
                    "state_p50_us": 7 if many == 1 else None, "tokens_per_s": many / step * 1e6, "step_bound_us": 90 + 0.8 * attend,
                    "step_bound_share": (90 + 0.8 * attend) / step, "cache_share": (attend + 2) / step, **compared}  # fmt: skip


@plants
def eval(lengths):
    return [(variant, 300, {"workload": "dump", "err_rel_l2": error, "held_bytes_per_token": held, "kept_tokens": 300}) for variant, error, held in (
        (F32, 3e-7, 2048), (F16, 4e-4, 1024), (Q8, 6e-3, 1088), ("doubling/f32/full", 3e-7, 4096),
        ("doubling(read=copy)/f32/full", 3e-7, 4097), ("concat/f32/full", 3e-7, 2049))]  # fmt: skip


MODEL_SERIES = {
    F32: 0, F16: 1e-7, "contiguous/token(bits=4)/full": 3e-3, Q8: 1e-5, "contiguous/token(bits=2)/full": 0.2,
    "contiguous/f16/ring(window={budget})": 1, "contiguous/f16/tova(budget={budget})": 1,
    "contiguous/f16/quest(top=0.1)": 0.02, "contiguous/f16/quest(top=0.5)": 1e-4,
}  # fmt: skip


def predicting(distances, full):
    """Codecs, selections, and two policies that evict, and so forget what is farther away than their budget; `full`: the full cache's loss."""
    for series, kl in MODEL_SERIES.items():
        for kept in (64, 256) if "{" in series else (1024,):
            for distance in distances:
                read = float(series.split("top=")[1][:3]) if "quest" in series else 1
                change = 6.1 if distance and kept < distance else kl / kept if kl == 1 else kl
                yield series.replace("{budget}", str(kept)), distance + 103 if distance else 1024, {
                    "series": series, "kept_tokens": kept, "held_bytes_per_token": kept * (2 if kl else 4), "loss": full + change, "loss_se": 0.05,
                    "bytes_read": int(kept * (2 if kl else 4) * read), "verdict": "worse" if kl > 1e-3 else "negligible" if kl else "baseline",
                    "perplexity": math.exp(full + change), "tokens_per_s": 2000, "kl_mean": change, "top1_agreement": 0.97, "loss_change": change,
                    **({"distance": distance, "passage_tokens": 64} if distance else {})}  # fmt: skip


@plants
def quality(lengths):
    return predicting([None], 1.9)


@plants
def recall(lengths):
    return predicting((100, 200, 400), 0.1)


@plants
def sensitivity(lengths):
    """K is worse than V, and layer 1 than layer 0; together they cost less than the sum."""
    for codec, kl in (("q8_0", 1e-5), ("q4_0", 3e-3)):
        for layer in (0, 1):
            for side in "KV":
                yield f"{F32} + {layer}:contiguous/split({side}={codec})", 512, {
                    "sensitive_layer": layer, "sensitive_side": side, "sensitive_format": codec, "series": codec,
                    "kl_mean": kl * (1 + layer) * (3 if side == "K" else 1)}  # fmt: skip
    for variant, codec, predicted, factor in (
        (Q8, "q8_0", 1.2e-4, 1), ("contiguous/q4_0/full", "q4_0", 3.6e-2, 0.9),
        *(("contiguous/q4_0/full + 0:contiguous/" + codec, "mixture", predicted, factor) for codec, predicted, factor in (
            ("q8_0", 2.4e-2, 0.8), ("q5_0", 2.5e-2, 0.9), ("q5_1", 2.45e-2, 1.1), ("f16", 2.2e-2, 0.7)))
    ):  # fmt: skip
        yield variant, 512, {"sensitive_side": "KV", "sensitive_format": codec, "series": codec, "predicted_kl": predicted, "kl_mean": factor * predicted}


@plants
def task(lengths):
    """A window forgets the beginning; the model itself fails where the line stands last in the longer context. Three places count."""
    ring = "contiguous/f32/ring(window={budget})"
    caches = [(F32, F32, 400, 15, "identical"), (Q8, Q8, 106, 14, "too_few_questions"), ("contiguous/f32/topk", "contiguous/f32/topk", 50, 15, "not_found_worse"),
              *((ring.replace("{budget}", str(kept)), ring, kept / 2, 0, "worse") for kept in (64, 256))]  # fmt: skip
    for variant, policy, held, middle, verdict in caches:
        for length in (512, 1024):
            for depth in (10, 90):
                right, failed = 15 if depth == 90 else middle, (depth, length) == (90, 512)
                yield variant, length, {
                    "series": policy, "task": "single", "query": "after", "depth": depth, "held_bytes_per_token": held, "batch": 16, "right": right,
                    "accuracy": right / 16, "accuracy_ci_low": right / 20, "accuracy_ci_high": (right + 1) / 16, "full_right": 15, "versus": "contiguous",
                    "usable": "no" if failed else "yes", "verdict": "" if failed else verdict, "pooled_questions": 48,
                    "pooled_right": 2 * middle + 15, "pooled_full_right": 45}  # fmt: skip


STREAM = {F32: 1.5, "contiguous/f32/ring(window=256)": 0, "recompute(window=256,stride=32)": 0}


@plants
def stream(lengths):
    """A cache that keeps all fails beyond the trained context; a window does not."""
    return [(variant, 8192, {"loss": 2 + lost, "loss_se": 0.02, "perplexity": math.exp(2 + lost), "loss_change": lost, "tokens_per_s": 500,
                             "verdict": "worse" if lost else "ambiguous"}) for variant, lost in STREAM.items()]  # fmt: skip


UNIFORM = "contiguous/f16/snapkv(budget=96)"
BESIDE = {  # variant: (loss less the baseline's, whose interval is 0.1 on either side; bytes)
    UNIFORM: (0, 300), "contiguous/f16/ada(budget=96)": (0.05, 300), "contiguous/f16/h2o(heavy=64,recent=64)": (-0.7, 303),
    "contiguous/f16/snapkv(budget=128) + 1:contiguous/f16/snapkv(budget=64)": (0.4, 298),
    "contiguous/f16/ring(window=64) + 1:contiguous/f16/duo(retrieval=0)": (-0.2, 305),
    "contiguous/f16/duo(retrieval=0.5)": (-2, 600),
}  # fmt: skip


@plants
def beside(lengths):
    """Losses compared with a variant that the config names: budgets by layer and head, of its bytes but for one."""
    for experiment, length, distance in (("quality", 1024, None), ("recall", 403, 300)):
        for variant, (change, held) in BESIDE.items():
            change = change * (1 if distance else 0.3)
            verdict = "baseline" if variant == UNIFORM else "ambiguous" if abs(change) < 0.1 else "worse" if change > 0 else "better"
            yield variant, length, {
                "experiment": experiment, "kept_tokens": 150, "held_bytes_per_token": held, "distance": distance,
                "passage_tokens": 64 if distance else None, "loss": 3 + change, "loss_se": 0.1, "perplexity": math.exp(3 + change),
                "loss_change": change, "loss_change_ci_low": change - 0.1, "loss_change_ci_high": change + 0.1, "verdict": verdict,
                "versus": UNIFORM, "bytes_read": 100, "kl_mean": 2 + change, "top1_agreement": 0.9}  # fmt: skip


@plants
def peers(lengths):
    """ggml takes three times as long as kvlab and onnxruntime, which has no cold times, less as caches grow."""
    for length in (128, 512, 2048):
        for engine, name, ratio, has_cold in (("ggml", "f32", 3, True), ("ggml", "q8_0", 3.5, True), ("onnxruntime", "f32", 200 / length, False)):
            cold = {"peer_cold_ratio_p50": 1.1 * ratio, "peer_cold_ratio_ci_low": ratio, "cold_attend_p50_us": 12 * ratio} if has_cold else {}
            yield f"{engine}/{name}", length, {
                "experiment": "decode", "peer": engine, "peer_version": "1.2", "peer_settings": "one <thread>", "peer_versus": F32 if name == "f32" else Q8,
                "peer_ratio_p50": ratio, "step_p50_us": 10 * ratio, "bytes_payload": "", "bytes_metadata": "", "bytes_slack": "",
                "bytes_workspace_peak": "", **cold}  # fmt: skip


@plants
def tiers(lengths):
    """64 rows hot, 128 warm, the rest in a file. Memory gives 20 GB/s, a file 2; attention takes 1.2 times the longer of the two, and
    hides half of the reading."""
    for variant, size, hidden in (("tiered(hot=64,warm=128)/f32/full", 4, 0.5), ("tiered(hot=64,warm=128)/f16/full", 2, 0.7)):
        for length in (128, 512, 2048):
            rows = {"hot": min(64, length), "warm": min(128, max(0, length - 64)), "disk": max(0, length - 192)}
            held = {tier: ROW * size * count for tier, count in rows.items()}
            memory, disk = (held["hot"] + held["warm"]) / 20e3, held["disk"] / 2e3
            of_file = {"disk_ceiling_gbps": 2, "disk_hidden_share": hidden} if disk else {}
            yield variant, length, {
                "experiment": "decode", **{f"bytes_{tier}": count for tier, count in held.items()},
                **{f"read_{tier}_bytes": count + 64 for tier, count in held.items() if count}, "hot_ceiling_gbps": 20, "warm_ceiling_gbps": 20,
                "attend_p50_us": 1.2 * max(memory, disk), "tier_bound_us": max(memory, disk), "tier_bound": "disk" if disk > memory else "memory",
                "tier_bound_share": 1 / 1.2, **of_file}  # fmt: skip


RUNNING = {F16: 10, "paged(block=16)/f16/full": 40, "paged(block=16)/q8_0/full": 75}


@plants
def replay(lengths):
    """Two machines, a variant that reserves and two that page."""
    for machine, many in (("24GB", 1), ("40GB", 2)):
        for variant, running in RUNNING.items():
            waiting = max(0, 80 - running * many)
            yield variant, 8192, {
                "workload": "requests.jsonl", "arrivals": "poisson(2)", "machine": machine, "step_tokens": 2048, "batch": 256, "bytes_payload": "",
                "refused": 0, "running_p50": running * many, "running_p99": running * many + 3, "running_peak": running * many + 5,
                "waiting_p99": waiting, "times_from": "assumed", "counts_from": "computed"}  # fmt: skip


@plants
def serve(lengths):
    for batching in ("static", "whole", "64"):
        for variant in RUNNING:
            yield variant, 1024, {"workload": "model", "arrivals": "poisson(20)", "batching": batching, "batch": 16, "bytes_payload": "", "refused": 0}


@plants
def speculate(lengths):
    return [(variant, 192, {"workload": "model", "proposed_tokens": tokens, "batch": 16, "acceptance": share**tokens})
            for tokens in (2, 8) for variant, share in ((F16, 0.99), ("contiguous/q4_0/full", 0.95))]  # fmt: skip


def of(experiment, rows):
    """The rows of a table beside cells.csv: those that `rows` gives of each cell of the experiment."""
    return lambda cells: [{"cell": own["cell"], "variant": own["variant"], **row} for own in cells if own["experiment"] == experiment for row in rows(own)]


def positions(own):
    """Windows are exact until they evict."""
    return [{"seq_len": 1024, "position_first": first, "position_last": last, "predictions": 8 * (last - first + 1), "loss": 2, "loss_se": 0.1,
             "top1_agreement": 0.97, **{f"kl_mean{end}": own["kl_mean"] * share * (not last < own["kept_tokens"] < 1024)
                                        for end, share in (("", 1), ("_ci_low", 0.8), ("_ci_high", 1.2))}}
            for first, last in ((0, 15), (16, 31), (32, 63), (64, 127), (128, 255), (256, 511), (512, 1023))]  # fmt: skip


def stretches(own):
    return [{"seq_len": 8192, "position_first": first, "position_last": first + 1023, "predictions": 1024,
             "loss": 2 + STREAM[own["variant"]] * first / 4096, "loss_se": 0.08} for first in range(0, 8192, 1024)]  # fmt: skip


def heads(own):
    """The later a layer and the higher a head, the worse."""
    return [{"layer": layer, "q_head": head, "err_rel_l2": own["err_rel_l2"] * (0.5 + layer + head / 8)}
            for layer in range(SHAPE["layers"]) for head in range(SHAPE["q_heads"])]  # fmt: skip


def moments(own):
    return [{"time_s": 10 * (at + 1), "running": own["running_p50"] * at / 10, "waiting": own["waiting_p99"] * at / 12, "payload_bytes": 1e7 * at,
             "slack_bytes": 1e7 * at / RUNNING[own["variant"]], "other_bytes": 1e5, "cached_bytes": 1e6 * at} for at in range(10)]  # fmt: skip


def hits(own):
    return [{"capacity_bytes": capacity * 1000, "block_tokens": tokens, "capacity_blocks": capacity, "hit_rate": 0.4 * capacity / 1024,
             "belady_hit_rate": 0.4 * (capacity / 1024) ** 0.5, "hit_rate_at_any": 0.4}
            for tokens in (128, 512) for capacity in (1, 32, 1024) if own["machine"] == "24GB"]  # fmt: skip


def texts(own):
    common = {"temperature": 0, "sequence": 0, "prompt": "<i>Once</i> upon", "full_text": " a time <b>there</b>\nwas"}
    two = {F32: {**common, "text": common["full_text"]}, F16: {**common, "text": " a time they & all", "common_tokens": 2}}
    return [two[own["variant"]]] if own["seq_len"] == 512 else []


SIDES = {
    "positions.csv": lambda cells: of("quality", positions)(cells) + of("stream", stretches)(cells), "heads.csv": of("eval", heads),
    "replay.csv": of("replay", moments), "hits.csv": of("replay", hits), "texts.csv": of("generate", texts),
}  # fmt: skip
