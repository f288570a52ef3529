"""Registers, spills, blocks an SM, and instructions a tile of every GPU kernel, from the assembled code.

A kernel is slower than planned if it spills, if an SM holds fewer of its blocks than designed, or if its loop has more
instructions than an SM can issue while memory delivers a tile; without a GPU nothing else shows this. budgets.csv beside this
file has each instance's budget. The table of counts is printed and left in the build folder.
"""

import csv
from collections import Counter
from pathlib import Path

import pytest
import sass

# The fast kernel: pairs of codecs times head_dims and queries a block (8 or 16 at 64 and 128, 8 at 256; f32: 1 or 4), those with
# a stage less, for 99 KiB of shared memory, and those of chunks (64 queries a block, 32 at 256; a warp has a quarter of them).
INSTANCES = {"decode": 16 * 5 + 3 * 2 + 9 + 16 * 3}
# The plain kernels are not tuned. The others' limits follow from their blocks an SM.
MOST_REGISTERS = {"attend_simple": 128, "append_rows": 128, "merge_splits": 80}
OTHERS = 64

# An SM's limits, from NVIDIA's tables of compute capabilities: shared memory in KiB (a block can have all but one, and each
# block takes one more); warps; blocks; and the compiled target that runs there. Users' builds have no sm_120, and none has
# sm_100: there the driver compiles the intermediate code, with an unknown number of registers.
SMS = {"sm_80": (164, 64, 32, "sm_80"), "sm_86": (100, 48, 16, "sm_80"), "sm_89": (100, 48, 24, "sm_89"),
       "sm_90": (228, 64, 32, "sm_90a"), "sm_120": (100, 48, 24, "sm_120")}
TARGETS = ["sm_80", "sm_89", "sm_90a", "sm_120"]
REGISTERS = 65536
WARPS = 4  # a block: kDecodeWarps

# An H100 SXM: the rate of its measured copy, its SMs, a clock that it holds; each scheduler issues an instruction a cycle.
BYTES_A_SECOND, MULTIPROCESSORS, HERTZ, SCHEDULERS = 3.05e12, 132, 1.85e9, 4


def blocks_of_sm(arch, registers, shared_bytes):
    kib, warps, most, _ = SMS[arch]
    if shared_bytes > (kib - 1) * 1024:
        return 0
    of_a_warp = -(-registers * 32 // 256) * 256
    by_shared = kib * 1024 // (-(-(shared_bytes + 1024) // 128) * 128)
    return min(by_shared, REGISTERS // (of_a_warp * WARPS), warps // WARPS, most)


def issue_share(instructions, tile_bytes):
    """The share of the instructions that an SM can issue while memory delivers a tile; such a kernel sustains 0.60 to 0.65."""
    seconds = tile_bytes * MULTIPROCESSORS / BYTES_A_SECOND
    return instructions / (seconds * HERTZ * SCHEDULERS)


@pytest.fixture(scope="module")
def kernels():
    found = sass.reports()
    if not found:
        pytest.skip("this build has no GPU kernels: no CUDA compiler was found")
    return found


@pytest.fixture(scope="module")
def names(kernels):
    return sass.demangled({name for _, name, _ in kernels})


def short(name):
    """`decode` of kv::cuda::decode<...>"""
    return name.split("<")[0].split("::")[-1]


@pytest.fixture(scope="module")
def budgets():
    with (Path(__file__).with_name("budgets.csv")).open() as file:
        return {(row["codec"], *(int(row[name]) for name in ("head_dim", "queries", "stages"))): row for row in csv.DictReader(file)}


def key(instance):
    return instance["codec"], instance["head_dim"], instance["queries"], instance["stages"]


def test_every_instance_is_compiled_for_ampere_and_hopper(kernels, names, budgets):
    of = {}
    for _, name, arch in kernels:
        if short(names[name]) in INSTANCES:
            of.setdefault(arch, {}).setdefault(short(names[name]), set()).add(names[name])
    if not {"sm_80", "sm_90a"} <= of.keys():
        pytest.skip(f"this build is for {', '.join(sorted(of))} alone")
    counts = {arch: {kernel: len(found) for kernel, found in kinds.items()} for arch, kinds in of.items()}
    assert counts == dict.fromkeys(of, INSTANCES)
    instances = sass.instances()
    assert set().union(*of["sm_80"].values()) == instances.keys()
    assert {key(instance) for instance in instances.values()} == budgets.keys()


def test_nothing_spills(kernels):
    spilling = [key for key, k in kernels.items() if int(k["stores"]) + int(k["loads"]) > 0]
    assert spilling == []


def test_fast_kernels_have_all_arrays_in_registers(kernels, names):
    # Or a loop over one was not unrolled.
    in_memory = [key for key, k in kernels.items() if short(names[key[1]]) in INSTANCES and int(k["stack"]) > 0]
    assert in_memory == []


def test_registers_of_other_kernels_stay_under_their_limits(kernels, names):
    over = {
        kernel: int(k["registers"])
        for kernel, k in kernels.items()
        if short(names[kernel[1]]) not in INSTANCES
        and int(k["registers"]) > MOST_REGISTERS.get(short(names[kernel[1]]), OTHERS)
    }
    assert over == {}


def test_an_sm_holds_as_many_blocks_as_were_planned(kernels, names, budgets):
    registers = {(names[name], arch): int(k["registers"]) for (_, name, arch), k in kernels.items()}
    fewer = {}
    for instance in sass.instances().values():
        for arch, (*_, target) in SMS.items():
            if (instance["name"], target) not in registers:
                continue
            blocks = blocks_of_sm(arch, registers[instance["name"], target], instance["shared_bytes"])
            planned = int(budgets[key(instance)][f"blocks_{arch}"])
            if blocks != planned:
                fewer[(*key(instance), arch)] = f"{blocks}, not {planned}"
    assert fewer == {}


def test_every_codec_and_head_dim_has_a_fast_kernel_on_every_gpu(budgets):
    """The sources' main case is head_dim 256 on a GPU with 100 KiB of shared memory an SM."""
    held = {}
    for (codec, head_dim, *_), row in budgets.items():
        for arch in SMS:
            held[codec, head_dim, arch] = max(held.get((codec, head_dim, arch), 0), int(row[f"blocks_{arch}"]))
    assert [place for place, blocks in held.items() if blocks == 0] == []


def test_shared_memory_and_registers_both_limit_blocks():
    assert blocks_of_sm("sm_90", 168, 10 * 1024) == 3  # registers
    assert blocks_of_sm("sm_90", 168, 77840) == 2  # shared memory
    assert blocks_of_sm("sm_90", 64, 1024) == 8
    assert blocks_of_sm("sm_80", 32, 1024) == 16  # warps
    assert blocks_of_sm("sm_86", 168, 99 * 1024) == 1
    assert blocks_of_sm("sm_86", 168, 99 * 1024 + 1) == 0
    assert issue_share(609, 8192) == pytest.approx(0.232, abs=0.001)


def disassembler():
    cuobjdump = sass.find_cuobjdump()
    if not cuobjdump:
        pytest.skip("no cuobjdump here: it is in the CUDA toolkit, or python -m pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    return cuobjdump


def test_the_read_ceiling_has_eight_loads_in_flight(kernels, names):
    archs = {arch for _, name, arch in kernels if short(names[name]) == "read_all"}
    assert archs
    for arch in archs:
        found = sass.disassembled(disassembler(), arch, "cuda_gpu")
        loop = sass.main_loop(next(code for name, code in found.items() if "read_all" in name), "LDG")
        kinds = [operation.split(".")[0] for _, _, operation, _ in loop]
        first = kinds.index("LDG")
        before_use = kinds[first : kinds.index("LOP3", first)]
        assert before_use.count("LDG") == kinds.count("LDG") == 8, arch
        assert all(".128" in operation for _, _, operation, _ in loop if operation.startswith("LDG"))


def tiles_in(loop, instance):
    """The compiler may unroll several tiles."""
    return sum(i[2].startswith("HMMA") for i in loop) / instance["products"] if instance["products"] else 1


@pytest.fixture(scope="module")
def loops(kernels, names):
    """{target: [(instance, main loop, the operation of its work)]} of the fast kernels of each target of this build."""
    instances, found = sass.instances(), {}
    for target in sorted({arch for *_, arch in kernels} & set(TARGETS), key=TARGETS.index):
        found[target] = []
        for mangled, code in sass.disassembled(disassembler(), target).items():
            instance = instances[names[mangled]]
            work = "HMMA" if instance["products"] else "LDS.128"  # the loads of f32 rows
            found[target].append((instance, sass.main_loop(code, work), work))
    return found


# Instructions in append_rows that read and write memory, those of a byte apart: only codes of odd widths are written by bytes.
APPEND_READS, APPEND_WRITES, APPEND_BYTES = 17, 23, 1


def test_append_reads_and_writes_as_wide_as_rows_are_aligned(kernels):
    over = {}
    for target in sorted({arch for *_, arch in kernels} & set(TARGETS)):
        (code,) = [code for name, code in sass.disassembled(disassembler(), target, "cuda_gpu").items() if "append_rows" in name]
        reads, writes = ([o for _, _, o, _ in code if o.split(".")[0] in kinds] for kinds in (("LD", "LDG"), ("ST", "STG")))
        narrow = sum(o.endswith((".U8", ".S8")) for o in writes)
        if any(o.endswith((".U8", ".S8", ".U16")) for o in reads) or narrow > APPEND_BYTES:
            over[target] = Counter(reads + writes)
        if len(reads) > APPEND_READS or len(writes) - narrow > APPEND_WRITES:
            over[target] = Counter(reads + writes)
    assert over == {}


def test_no_matrix_product_is_behind_a_branch(loops):
    """All lanes take part in it, and a branch that only some take would leave the others out."""
    behind = [(*key(instance), target) for target, of in loops.items() for instance, loop, work in of
              if work == "HMMA" and any(i[2].startswith(work) for over in sass.skipped(loop) for i in over)]
    assert behind == []


def test_no_loop_has_more_instructions_than_its_budget(loops, budgets, capsys):
    counted = {target: {key(instance): len(sass.usual(loop, work)) / tiles_in(loop, instance) for instance, loop, work in of}
               for target, of in loops.items()}
    lines = ["instructions of every tile, and the share of an H100's issue slots",
             "codec      head_dim queries stages bytes" + "".join(f"{target:>8}" for target in counted) + "   issue"]
    over = {}
    for instance in sass.instances().values():
        own = {target: of[key(instance)] for target, of in counted.items()}
        over |= {(*key(instance), target): round(count) for target, count in own.items()
                 if count > float(budgets[key(instance)][f"loop_{target}"])}
        share = f"{100 * issue_share(own['sm_90a'], instance['bytes']):5.0f} %" if "sm_90a" in own else ""
        lines.append(f"{instance['codec']:10} {instance['head_dim']:8} {instance['queries']:7} {instance['stages']:6} "
                     f"{instance['bytes']:5}" + "".join(f"{count:8.0f}" for count in own.values()) + f" {share}")
    table = "\n".join(lines)
    (sass.BUILD / "instructions.txt").write_text(table + "\n")
    with capsys.disabled():
        print("\n" + table)
    assert [len(of) for of in counted.values()] == [sum(INSTANCES.values())] * len(counted)
    assert over == {}


# One sequence of 1,024 tokens: a warp has a tile or two, so dependent reads decide. Microseconds, assumed and not measured: an
# empty kernel, a read from memory, a read from the L2.
LAUNCH, FIRST_READ, L2 = 2.5, 0.7, 0.3


def test_a_short_step_waits_for_few_answers(names, capsys):
    """f16 at 128 dimensions reads work item, problem, page and rows one after the other; then the last block reads eight splits'
    results at once, in two waits at most, after a fence and a count."""
    (code,) = [
        code
        for mangled, code in sass.disassembled(disassembler(), "sm_90a", "decode_plain").items()
        if (row := sass.instances()[names[mangled]])["codec"] == "f16" and (row["head_dim"], row["queries"]) == (128, 8)
    ]
    found = sass.round_trips(code)
    rows = next(step for operation, step in found if operation.startswith("LDGSTS"))
    fence = next(step for operation, step in found if operation.startswith("MEMBAR"))
    splits = [step for operation, step in found if operation.startswith("LDG") and ".STRONG" in operation]
    assert len(splits) == 24 and len(set(splits)) <= 2  # largest score, sum and four elements of eight splits
    # The problem's fields are in the first-level cache by then, and wait for none.
    merging = ["fence", "count", "results"]
    assert rows == 3 and splits[0] - fence <= len(merging) + 1
    estimate = LAUNCH + FIRST_READ * (rows + 1) + L2 * len(merging)
    with capsys.disabled():
        print(f"\na step of 1,024 tokens on an H100, estimated: {estimate:.1f} µs, of which launch {LAUNCH}, {rows + 1} first reads of {FIRST_READ}, "
              f"{len(merging)} waits of {L2} for the L2, all assumed")
    assert estimate <= 7


def test_waits_for_answers_are_counted():
    code = [(0, "", "LDG.E.64", "R2, [R4.64]"), (16, "", "LDG.E", "R6, [R8.64]"), (32, "", "IADD3", "R7, R6, R3, RZ"),
            (48, "", "LDG.E", "R9, [R7.64]"), (64, "@P0", "MEMBAR.SC.GPU", ""), (80, "", "STG.E", "[R2.64], R9")]  # fmt: skip
    assert [step for _, step in sass.round_trips(code)] == [0, 0, 1, 1, 2]
