"""The assembled kernels: registers and spills from the assembler's report, instructions from the disassembly."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

BUILD = Path(os.environ["KVLAB_PROGRAM"]).parent.parent
KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>sm_\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)


def reports():
    """Every kernel of this build: {(file, mangled name, arch): match}."""
    found = {}
    for report in BUILD.glob("kernels/**/*.cu.o.ptxas"):
        for match in KERNEL.finditer(report.read_text()):
            found[report.name, match["name"], match["arch"]] = match
    return found


def demangled(names):
    """{mangled name: demangled name without return type and parameters}."""
    names = list(names)
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    short = (re.sub(r"^void |\([^()]*\)$", "", line) for line in done.stdout.splitlines())
    return dict(zip(names, short, strict=True))


def instances():
    """cuda_instances' row of each instance of the fast kernels: {name: row}."""
    rows = subprocess.run([BUILD / "tests" / "cuda_instances"], capture_output=True, text=True, check=True).stdout
    return {row["name"]: row for row in map(json.loads, rows.splitlines())}


def find_cuobjdump():
    """cuobjdump beside nvcc or in NVIDIA's wheel (nvidia-cuda-cuobjdump, with nvidia-cuda-nvdisasm), else None."""
    wheels = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    candidates = [shutil.which("cuobjdump"), Path(nvcc).parent / "cuobjdump", *wheels.glob("*/bin/cuobjdump")]
    return next((Path(c) for c in candidates if c and Path(c).is_file()), None)


INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")


def disassembled(cuobjdump, arch, files="decode_*"):
    """{mangled name: [(address, condition, operation, operands)]} of all kernels of these files of this build."""
    path = f"{cuobjdump.parent}:{os.environ['PATH']}"  # it calls nvdisasm
    found = {}
    for file in sorted(BUILD.glob(f"kernels/**/{files}.cu.o")):
        text = subprocess.run([cuobjdump, "-sass", "-arch", arch, file], capture_output=True, text=True, check=True,
                              env={**os.environ, "PATH": path}).stdout
        for function in text.split("Function : ")[1:]:
            name, _, body = function.partition("\n")
            found[name.strip()] = [(int(a, 16), c, o, x) for a, c, o, x in INSTRUCTION.findall(body)]
    return found


def main_loop(code, work):
    """The shortest of the loops with the most instructions of `work`, or an empty list."""
    best, most = [], 0
    for address, _, operation, operands in code:
        target = re.fullmatch(r"(?:.*, *)?0x([0-9a-f]+) *", operands) if operation.startswith("BRA") else None
        if not target or int(target[1], 16) > address:
            continue
        loop = [i for i in code if int(target[1], 16) <= i[0] <= address]
        count = sum(i[2].startswith(work) for i in loop)
        if count > most or (count == most and len(loop) < len(best)):
            best, most = loop, count
    return best


def skipped(loop):
    """The instructions that each branch of the loop to a later one of its instructions skips."""
    for address, _, operation, operands in loop:
        target = re.fullmatch(r"(?:.*, *)?0x([0-9a-f]+) *", operands) if operation.startswith("BRA") else None
        if target and address < int(target[1], 16) <= loop[-1][0]:
            yield [i for i in loop if address < i[0] < int(target[1], 16)]


def usual(loop, work):
    """The loop without code that branches skip and that neither copies, loads operands nor does `work`: it serves tiles with a much
    larger maximum, or kept scores, which are rare."""
    every_tile = (work, "LDGSTS", "LDSM", "LDGDEPBAR", "DEPBAR")
    seldom = {i[0] for over in skipped(loop) if not any(i[2].startswith(every_tile) for i in over) for i in over}
    return [i for i in loop if i[0] not in seldom]


REGISTER = re.compile(r"\b(U?R|U?P)(\d+)\b(\.64)?")
WRITES_NO_REGISTER = ("ST", "LDGSTS", "BRA", "EXIT", "BAR", "MEMBAR", "RED", "DEPBAR", "LDGDEPBAR", "ERRBAR", "CCTL", "WARPSYNC")


def registers(text):
    found = set()
    for kind, number, wide in REGISTER.findall(text):
        found |= {kind + number, f"{kind}{int(number) + 1}"} if wide else {kind + number}
    return found


def round_trips(code):
    """[(operation, number of memory answers its warp has waited for at its issue)] of accesses to global memory.

    Each instruction counts once, in the order of addresses: a warp issues in order, so an instruction whose operand has not
    arrived delays all that follow. A fence waits for one answer, as does a barrier or a wait for copies."""
    ready, found, now, copied = {}, [], 0, 0
    for _, condition, operation, operands in code:
        kind, parts = operation.split(".")[0], [part.strip() for part in operands.split(",")]
        own = [] if kind.startswith(WRITES_NO_REGISTER) else [
            part for i, part in enumerate(parts[:2])
            if re.fullmatch(r"U?[RP]\d+", part) and (i == 0 or "P" in part)]
        needed = registers(",".join(parts[len(own):])) | registers(condition or "")
        now = max([now, *(ready.get(register, 0) for register in needed)])
        if kind in ("DEPBAR", "BAR"):
            now = max(now, copied)
        asks = kind == "LDG" or kind.startswith("ATOM")
        if asks or kind in ("LDGSTS", "STG", "MEMBAR"):
            found.append((operation, now))
        if kind == "LDGSTS":
            copied = now + 1
        now += kind == "MEMBAR"
        wide = 4 if ".128" in operation else 2 if ".64" in operation or ".WIDE" in operation else 1
        for name in own:
            letters, number = re.fullmatch(r"(U?[RP])(\d+)", name).groups()
            for i in range(wide if "R" in letters else 1):
                before = ready.get(f"{letters}{int(number) + i}", 0) if condition else 0
                ready[f"{letters}{int(number) + i}"] = max(before, now + asks)
    return found
