"""The short table at the end of gpu-check."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
POINT = ("batch", "seq_len", "kv_heads", "group", "head_dim")


def point_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in POINT)


def best_peers(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    """The fastest peer of each point and kind of cache: {(*point, bits): row}."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row.get("stage") != "peers" or row.get("status") != "ok":
            continue
        key = (*point_of(row), row["bits"])
        if key not in best or row["steady_us"] < best[key]["steady_us"]:
            best[key] = row
    return best


def bits_of(codec: str) -> int:
    if codec == "f32":
        return 32
    if codec in ("f16", "bf16"):
        return 16
    return int("".join(c for c in codec.replace("_0", "") if c.isdigit())[:1] or 8)


# Of the read ceiling, for K and V of 256 MiB and more; and of one sequence of 1024 tokens, in us.
TARGETS = {16: 0.92, 8: 0.90, 4: 0.85, 2: 0.75}
LARGE_BYTES = 1 << 28
PAGED_LOSS = 0.02
SHORT, SHORT_US = (1, 1024), 7.0


def target_of(row: Row, rows: list[Row]) -> str:
    """What the row is held against and whether it meets that, or nothing where there is no target.

    Paged rows are held against contiguous ones of the same point.
    """
    if row["codec"] == "f16" and (row["batch"], row["seq_len"]) == SHORT:
        wanted, met = f"{SHORT_US:.0f} us", row["steady_us"] <= SHORT_US
    elif row["kv_bytes"] < LARGE_BYTES:
        return ""
    elif row["page_rows"]:
        flat = [r for r in rows if point_of(r) == point_of(row) and r["codec"] == row["codec"] and not r["page_rows"]]
        if not flat:
            return ""
        wanted = f"{PAGED_LOSS:.0%} slower"
        met = row["steady_us"] <= (1 + PAGED_LOSS) * flat[0]["steady_us"]
    else:
        share = 0.92 if row["codec"].startswith("fp8") else TARGETS.get(bits_of(row["codec"]))
        if share is None:
            return ""
        wanted, met = f"{share:.0%}", row["share_of_ceiling"] >= share
    return f"{wanted} {'met' if met else 'MISSED'}"


def line(row: Row, best: dict[tuple[Any, ...], Row], rows: list[Row]) -> str:
    pages = f"pages of {row['page_rows']}" if row["page_rows"] else "contiguous"
    peer = best.get((*point_of(row), bits_of(row["codec"])))
    versus = f"{peer['steady_us'] / row['steady_us']:.2f}x {peer['name']}" if peer else ""
    shape = f"{row['batch']} x {row['seq_len']}, {row['kv_heads']} x {row['group']} heads of {row['head_dim']}"
    return (f"{row['codec']:8} {shape:36} {pages:13} {row['cold_us']:9.1f} {row['steady_us']:9.1f} "
            f"{100 * row['share_of_ceiling']:7.1f}%  {target_of(row, rows):17}  {versus}").rstrip()


def append_line(row: Row) -> str:
    shape = f"{row['batch']} x {row['kv_heads']} heads of {row['head_dim']}, rows at once: {row['rows']}"
    return f"{row['codec']:8} {shape:50} {row['cold_us']:9.1f} {row['steady_us']:9.1f}"


def prefill_line(row: Row) -> str:
    shape = (f"{row['batch']} x {row['seq_len']}, {row['kv_heads']} x {row['group']} heads of {row['head_dim']}, "
             f"chunk of {row['tokens']}")
    return f"{row['codec']:8} {shape:60} {row['steady_us']:9.1f} {row['tflop_s']:9.1f}"


def timed(rows: list[Row], stage: str) -> list[Row]:
    return [row for row in rows if row.get("stage") == stage and row.get("status") == "ok"]


def clocks_line(clocks: Row) -> str:
    moved = 1 - clocks["sm_mhz_least"] / clocks["sm_mhz_most"]
    line = f"SM clock while timing: {clocks['sm_mhz_least']} to {clocks['sm_mhz_most']} MHz"
    return line + (": IT MOVED by more than 5 %" if moved > 0.05 else "")


def short(rows: list[Row], environment: Row) -> str:
    lines = [f"GPU: {environment.get('gpu', {}).get('name', 'unknown')}"]
    for stage, outcome in environment.get("stages", {}).items():
        failed = [row for row in rows if row.get("stage") == stage and row.get("status") == "failed"]
        names = ", ".join(str(row.get("name") or row.get("codec") or row.get("reason", "")) for row in failed[:4])
        cut = [row["reason"] for row in rows
               if row.get("stage") == stage and row.get("status") in ("cut off", "hazards")]
        lines.append(f"{stage:10} {outcome['status']:12} {outcome['seconds']:6.1f} s  {names or '; '.join(cut)}".rstrip())
    spilling = [row["name"] for row in rows if row.get("stage") == "registers" and row["spill_bytes"]]
    lines.append(f"kernels that spill registers: {len(spilling)}")
    for row in rows:
        if row.get("stage") == "ceiling":
            lines.append(f"read ceiling {row['name']}: {row['read_gb_s']:.0f} GB/s, {row['blocks_of_sm']} blocks an SM, {row['sm_mhz']} MHz")
    if environment.get("clocks"):
        lines.append(clocks_line(environment["clocks"]))
    elif environment.get("no_clocks"):
        lines.append(f"SM clock while timing: unknown, {environment['no_clocks']}")
    for row in timed(rows, "split"):
        lines.append(f"{row['name']}: {row['speedup']:.2f}x as fast as whole")
    if environment.get("void"):
        lines.append("VOID: the ceiling moved by more than 2 % or was not measured twice; figures below prove nothing")
    decode, append, prefill = timed(rows, "decode"), timed(rows, "append"), timed(rows, "prefill")
    if decode:
        lines.append(f"\n{'decode':8} {'':36} {'':13} {'cold us':>9} {'steady us':>9} {'ceiling':>8}  {'target':17}  fastest peer")
        best = best_peers(rows)
        lines += [line(row, best, decode) for row in decode]
    if append:
        lines.append(f"\n{'append':8} {'':50} {'cold us':>9} {'steady us':>9}")
        lines += [append_line(row) for row in append]
    if prefill:
        lines.append(f"\n{'prefill':8} {'':60} {'steady us':>9} {'TFLOP/s':>9}")
        lines += [prefill_line(row) for row in prefill]
    return "\n".join(lines)
