# /// script
# dependencies = ["numpy>=2"]
# [tool.kvlab.formats]
# f32 = { stored = "f32", tolerance = 1e-5 }
# f16 = { stored = "f16", tolerance = 5e-2 }
# q8_0 = { stored = "q8_0", tolerance = 2e-2 }
# q4_0 = { stored = "q4_0", tolerance = 2e-2 }
# ///
"""ggml, the engine of llama.cpp, from the sdist of llama-cpp-python, compiled for this machine (install.py calls build).

A step is one graph: set_rows of K and V into the cache, then an arm of attention.
  flash_attn  flash_attn_ext, the only arm of quantised rows
  packed      mul_mat, soft_max_ext, mul_mat, with the queries of a group as rows of one product and V transposed, as llama.cpp has it
              without flash attention
flash_attn adds f16 rows up in f16, so that its error grows with the context; hence the tolerance.
Threads stay from step to step and poll, as in llama.cpp; they are paused while others are measured.
"""

import ctypes
import os
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "ggml"  # the libraries
NEEDS = ["numpy"]
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "i64": 27}
POINTER = ctypes.c_void_p
os.environ["GGML_NO_BACKTRACE"] = "1"  # makes a failed assertion the last line


def is_built():
    return (FOLDER / "libggml-cpu.so").is_file()


def build(scratch, run):
    """Downloads and compiles ggml. `run` runs a command; its failure ends the installation."""
    source, built = load("llama.cpp").source(scratch, run, "ggml/*") / "ggml", Path(scratch) / "build"  # noqa: F821  # serve.py gives it
    options = ["CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=ON", "GGML_NATIVE=ON", "GGML_OPENMP=OFF", "GGML_BUILD_TESTS=OFF",
               "GGML_BUILD_EXAMPLES=OFF", "CMAKE_BUILD_WITH_INSTALL_RPATH=ON", "CMAKE_INSTALL_RPATH=$ORIGIN"]  # fmt: skip
    run(["cmake", "-S", str(source), "-B", str(built), *(f"-D{option}" for option in options)])
    run(["cmake", "--build", str(built), "--target", "ggml-cpu", "--parallel"])
    FOLDER.mkdir(exist_ok=True)
    for library in ("libggml-base.so.0", "libggml-cpu.so"):  # the second is linked with the first by this name
        run(["cp", "-L", str(built / "src" / library), str(FOLDER / library)])


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool)]


class Plan(ctypes.Structure):
    _fields_ = [("work_size", ctypes.c_size_t), ("work_data", POINTER), ("n_threads", ctypes.c_int), ("threadpool", POINTER),
                ("abort", POINTER), ("abort_data", POINTER), ("use_ref", ctypes.c_bool), ("room", ctypes.c_byte * 64)]  # fmt: skip


class PoolParams(ctypes.Structure):
    _fields_ = [("cpumask", ctypes.c_bool * 512), ("n_threads", ctypes.c_int), ("prio", ctypes.c_int), ("poll", ctypes.c_uint32),
                ("strict_cpu", ctypes.c_bool), ("paused", ctypes.c_bool)]  # fmt: skip


class Library:
    """The C functions in use, with their types."""

    def __init__(self):
        base = ctypes.CDLL(str(FOLDER / "libggml-base.so.0"), mode=ctypes.RTLD_GLOBAL)
        cpu = ctypes.CDLL(str(FOLDER / "libggml-cpu.so"))
        i64, size, real, number = ctypes.c_int64, ctypes.c_size_t, ctypes.c_float, ctypes.c_int
        tensor = lambda count: [POINTER] * count  # noqa: E731
        for library, name, result, arguments in [
            (base, "ggml_version", ctypes.c_char_p, []),
            (base, "ggml_init", POINTER, [InitParams]),
            (base, "ggml_free", None, [POINTER]),
            (base, "ggml_new_tensor_4d", POINTER, [POINTER, number, i64, i64, i64, i64]),
            (base, "ggml_view_4d", POINTER, [*tensor(2), i64, i64, i64, i64, size, size, size, size]),
            (base, "ggml_permute", POINTER, [*tensor(2), number, number, number, number]),
            (base, "ggml_reshape_4d", POINTER, [*tensor(2), i64, i64, i64, i64]),
            (base, "ggml_flash_attn_ext", POINTER, [*tensor(5), real, real, real]),
            (base, "ggml_mul_mat", POINTER, tensor(3)),
            (base, "ggml_soft_max_ext", POINTER, [*tensor(3), real, real]),
            (base, "ggml_set_rows", POINTER, tensor(4)),
            (base, "ggml_cpy", POINTER, tensor(3)),
            (base, "ggml_new_graph", POINTER, [POINTER]),
            (base, "ggml_build_forward_expand", None, tensor(2)),
            (base, "ggml_get_data", POINTER, [POINTER]),
            (base, "ggml_nbytes", size, [POINTER]),
            (base, "ggml_row_size", size, [number, i64]),
            (base, "ggml_quantize_chunk", size, [number, POINTER, POINTER, i64, i64, i64, POINTER]),
            (base, "ggml_backend_cpu_buffer_type", POINTER, []),
            (base, "ggml_gallocr_new", POINTER, [POINTER]),
            (base, "ggml_gallocr_free", None, [POINTER]),
            (base, "ggml_gallocr_reserve", ctypes.c_bool, tensor(2)),
            (base, "ggml_gallocr_alloc_graph", ctypes.c_bool, tensor(2)),
            (base, "ggml_threadpool_params_default", PoolParams, [number]),
            (cpu, "ggml_cpu_init", None, []),
            (cpu, "ggml_graph_plan", Plan, [POINTER, number, POINTER]),
            (cpu, "ggml_graph_compute", number, tensor(2)),
            (cpu, "ggml_threadpool_new", POINTER, [POINTER]),
            (cpu, "ggml_threadpool_pause", None, [POINTER]),
            (cpu, "ggml_threadpool_resume", None, [POINTER]),
        ]:
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)
        self.cpu_init()


LIBRARY = None
POOLS = {}


def library():
    global LIBRARY
    LIBRARY = LIBRARY or Library()
    return LIBRARY


def pool_of(threads):
    """The thread pool of all caches."""
    if threads not in POOLS:
        parameters = library().threadpool_params_default(threads)
        POOLS[threads] = library().threadpool_new(ctypes.byref(parameters))
    return POOLS[threads]


def version():
    return f"{library().version().decode()} ({load('llama.cpp').SDIST.replace('==', ' ')})"  # noqa: F821


def arms(setting):
    return ["flash_attn", "packed"] if setting.format in ("f32", "f16") else ["flash_attn"]


class Cache:
    def __init__(self, setting, arm, tokens):
        import numpy as np

        s, self.arm = setting, arm
        self.setting, self.type = s, TYPES[s.format]
        g = self.g = library()
        row = g.row_size(self.type, s.head_dim)
        rows = s.batch * s.kv_heads * s.tokens
        small = 4 * s.batch * s.head_dim * (s.q_heads + 2 * s.kv_heads) * (s.steps + 1) + 8 * s.steps
        self.context = g.init(InitParams(2 * rows * row + small + (1 << 20), None, False))
        self.nodes = g.init(InitParams((s.steps + 1) << 19, None, True))  # graphs; their results share a buffer
        self.buffer = g.gallocr_new(g.backend_cpu_buffer_type())
        if not self.context or not self.nodes or not self.buffer:
            raise MemoryError
        self.pool = pool_of(s.threads)
        self.work = ctypes.create_string_buffer(1)
        g.threadpool_resume(self.pool)
        transposed = arm == "packed"
        self.k = self.tensor(self.type, s.head_dim, s.tokens, s.kv_heads, s.batch)
        self.v = self.tensor(self.type, *((s.tokens, s.head_dim) if transposed else (s.head_dim, s.tokens)), s.kv_heads, s.batch)
        v = np.asarray(tokens.v)
        self.encode(self.k, np.asarray(tokens.k))
        self.encode(self.v, v.swapaxes(2, 3) if transposed else v)
        self.graphs = [self.graph(tokens, i, append=True) for i in range(s.steps)]
        self.last = self.graph(tokens, s.steps - 1, append=False)
        if not all(allocate(self.buffer, self.graphs[-1][0]) for allocate in (g.gallocr_reserve, g.gallocr_alloc_graph)):
            raise MemoryError
        for graph in [*self.graphs, self.last]:
            g.gallocr_alloc_graph(self.buffer, graph[0])
            self.plan(graph)
        for graph in [*self.graphs, self.last]:
            graph[2].work_data = ctypes.addressof(self.work)
        self.settings = f"native build, {s.threads} polling threads, no mask, K and V of a head side by side"

    def __del__(self):
        if getattr(self, "buffer", None):
            self.g.gallocr_free(self.buffer)
        for context in (getattr(self, "context", None), getattr(self, "nodes", None)):
            if context:
                self.g.free(context)

    def tensor(self, kind, *shape):
        made = self.g.new_tensor_4d(self.context, kind, *shape)
        if not made:
            raise MemoryError
        return made

    def constant(self, array):
        """A tensor with the array's f32 or i64 values."""
        import numpy as np

        array = np.ascontiguousarray(array)
        shape = [*reversed(array.shape), 1, 1, 1][:4]
        made = self.tensor(TYPES["i64"] if array.dtype == np.int64 else 0, *shape)
        ctypes.memmove(self.g.get_data(made), array.ctypes.data, array.nbytes)
        return made

    def encode(self, to, values):
        """Encodes all rows but those of the steps, which are zero until their step; one head after another."""
        import numpy as np

        s, at = self.setting, self.g.get_data(to)
        ctypes.memset(at, 0, self.g.nbytes(to))
        head_bytes = self.g.nbytes(to) // (s.batch * s.kv_heads)
        for i, head in enumerate(values.reshape(-1, *values.shape[2:])):
            head = np.ascontiguousarray(head)
            where, source = POINTER(at + i * head_bytes), POINTER(head.ctypes.data)
            rows, width = head.shape
            if s.format == "f32":
                ctypes.memmove(where, source, head.nbytes)
            else:
                self.g.quantize_chunk(self.type, source, where, 0, rows, width, None)

    def seen(self, tensor, count):
        """The first rows of each head of K, or of V that is not transposed."""
        s, row = self.setting, self.g.row_size(self.type, self.setting.head_dim)
        return self.g.view_4d(self.nodes, tensor, s.head_dim, count, s.kv_heads, s.batch, row, s.tokens * row, s.kv_heads * s.tokens * row, 0)

    def graph(self, tokens, i, append):
        import numpy as np

        s, g, at, context = self.setting, self.g, self.setting.base + i, self.nodes
        made = g.new_graph(context)
        q, k, v = (np.asarray(side)[:, :, index] for side, index in ((tokens.q, i), (tokens.k, at), (tokens.v, at)))
        if append:
            index = self.constant(np.array([at], np.int64))
            g.build_forward_expand(made, g.set_rows(context, self.k, self.constant(k[:, :, None]), index))
            new_v = self.constant(v[:, :, None])
            if self.arm == "packed":
                g.build_forward_expand(made, self.copy_transposed(new_v, at))
            else:
                g.build_forward_expand(made, g.set_rows(context, self.v, new_v, index))
        out = self.flash(q, at + 1) if self.arm == "flash_attn" else self.packed(q, at + 1)
        g.build_forward_expand(made, out)
        return [made, out]

    def plan(self, graph):
        """Plans the graph; all graphs share one scratch buffer."""
        plan = self.g.graph_plan(graph[0], self.setting.threads, self.pool)
        if plan.work_size > len(self.work):
            self.work = ctypes.create_string_buffer(plan.work_size)
        graph.append(plan)

    def copy_transposed(self, new_v, at):
        s = self.setting
        size = self.g.row_size(self.type, 1)
        column = self.g.view_4d(self.nodes, self.v, 1, s.head_dim, s.kv_heads, s.batch, s.tokens * size, s.head_dim * s.tokens * size,
                                s.kv_heads * s.head_dim * s.tokens * size, at * size)  # fmt: skip
        standing = self.g.reshape_4d(self.nodes, new_v, 1, s.head_dim, s.kv_heads, s.batch)
        return self.g.cpy(self.nodes, standing, column)

    def flash(self, q, count):
        s = self.setting
        queries = self.constant(q[:, :, None])  # [head_dim, 1, q_heads, batch]
        scale = s.head_dim**-0.5
        return self.g.flash_attn_ext(self.nodes, queries, self.seen(self.k, count), self.seen(self.v, count), None, scale, 0.0, 0.0)

    def packed(self, q, count):
        s, g, context = self.setting, self.g, self.nodes
        size = g.row_size(self.type, 1)
        queries = self.constant(q.reshape(s.batch, s.kv_heads, s.group, s.head_dim))
        scores = g.mul_mat(context, self.seen(self.k, count), queries)  # [count, group, kv_heads, batch]
        weights = g.soft_max_ext(context, scores, None, s.head_dim**-0.5, 0.0)
        v = g.view_4d(context, self.v, count, s.head_dim, s.kv_heads, s.batch, s.tokens * size, s.head_dim * s.tokens * size,
                      s.kv_heads * s.head_dim * s.tokens * size, 0)  # fmt: skip
        return g.mul_mat(context, v, weights)  # [head_dim, group, kv_heads, batch], the order of the outputs

    def rewind(self):
        self.g.threadpool_resume(self.pool)

    def compute(self, graph):
        self.ran = graph
        if self.g.graph_compute(graph[0], ctypes.byref(graph[2])) != 0:
            raise RuntimeError("ggml_graph_compute failed")

    def step(self, i):
        self.compute(self.graphs[i])

    def attend(self):
        self.compute(self.last)

    def sleep(self):
        self.g.threadpool_pause(self.pool)

    def output(self):
        import numpy as np

        s = self.setting
        out = np.empty((s.batch, s.q_heads, s.head_dim), np.float32)
        ctypes.memmove(out.ctypes.data, self.g.get_data(self.ran[1]), out.nbytes)
        return out

    def bytes(self):
        return self.g.nbytes(self.k) + self.g.nbytes(self.v)
