"""Registers and spills of every GPU kernel, from the assembler's own report of this build.

A kernel that spills, or that needs so many registers that an SM holds fewer blocks than it was designed for, is slower
than it says; nobody would notice without a GPU.
"""

import os
import re
from pathlib import Path

import pytest

BUILD = Path(os.environ["KVLAB_PROGRAM"]).parent.parent
KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>sm_\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)
# Pairs of codecs, and head_dims with the queries of a block: 8 or 16 of 64 and of 128, 8 of 256; of f32 1 or 4.
INSTANCES = {"decode": 16 * 5, "decode_f32": 3 * 2}
# 3 blocks of 128 threads an SM, and 2 where a lane has most to hold: what decode.h is written for. The plain kernels are
# not tuned.
MOST_REGISTERS = {"decode": 168, "decode_f32": 168, "attend_simple": 128, "append_rows": 128}
MOST_WITH_TWO_BLOCKS = 255
OTHERS = 64


def kernels():
    """Every kernel of this build: {(file, name, arch): match}."""
    found = {}
    for report in BUILD.glob("kernels/**/*.cu.o.ptxas"):
        for match in KERNEL.finditer(report.read_text()):
            found[report.name, match["name"], match["arch"]] = match
    if not found:
        pytest.skip("this build has no GPU kernels: no CUDA compiler was found")
    return found


def short_name(mangled):
    """`decode` of _ZN2kv4cuda6decodeI..."""
    match = re.match(r"_ZN2kv4cuda(\d+)", mangled)
    return mangled[match.end() :][: int(match[1])] if match else mangled


def most_registers(mangled):
    """As decode_blocks() in decode.h has it."""
    shape = re.search(r"Li(\d+)ELi(\d+)EEEv", mangled)  # the last two: a format has numbers of its own
    parts = 3 if "Bfloat" in mangled else 2
    most = 1024 if re.search("decodeINS0_(2Q|8Floats16)", mangled) else 2048
    if short_name(mangled) == "decode" and shape and int(shape[1]) * int(shape[2]) * parts > most:
        return MOST_WITH_TWO_BLOCKS
    return MOST_REGISTERS.get(short_name(mangled), OTHERS)


def test_every_instance_is_compiled_for_ampere_and_hopper():
    of = {}
    for _, name, arch in kernels():
        if short_name(name) in INSTANCES:
            of.setdefault(arch, {}).setdefault(short_name(name), set()).add(name)
    if not {"sm_80", "sm_90a"} <= of.keys():
        pytest.skip(f"this build is for {', '.join(sorted(of))} alone")
    counts = {arch: {kernel: len(names) for kernel, names in kernels.items()} for arch, kernels in of.items()}
    assert counts == dict.fromkeys(of, INSTANCES)


def test_nothing_spills():
    spilling = [key for key, k in kernels().items() if int(k["stores"]) + int(k["loads"]) > 0]
    assert spilling == []


def test_registers_stay_under_their_limits():
    over = {
        key: int(k["registers"])
        for key, k in kernels().items()
        if int(k["registers"]) > most_registers(key[1])
    }
    assert over == {}
