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
DECODE_INSTANCES = 13 * 3 * 2  # pairs of codecs, head_dims, query heads a block
# 3 blocks of 128 threads an SM: what decode.h is written for. The plain kernels are not tuned.
MOST_REGISTERS = {"decode": 168, "attend_simple": 128, "append_rows": 128}
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


def test_every_instance_is_compiled_for_ampere_and_hopper():
    of = {}
    for _, name, arch in kernels():
        if short_name(name) == "decode":
            of.setdefault(arch, set()).add(name)
    if not {"sm_80", "sm_90a"} <= of.keys():
        pytest.skip(f"this build is for {', '.join(sorted(of))} alone")
    assert {arch: len(names) for arch, names in of.items()} == dict.fromkeys(of, DECODE_INSTANCES)


def test_nothing_spills():
    spilling = [key for key, k in kernels().items() if int(k["stores"]) + int(k["loads"]) > 0]
    assert spilling == []


def test_registers_stay_under_their_limits():
    over = {
        key: int(k["registers"])
        for key, k in kernels().items()
        if int(k["registers"]) > MOST_REGISTERS.get(short_name(key[1]), OTHERS)
    }
    assert over == {}
