# /// script
# dependencies = ["onnxruntime==1.32.0", "onnx==1.23.2", "numpy>=2"]
# [tool.kvlab.formats]
# f32 = { stored = "f32", tolerance = 1e-5 }
# f16 = { stored = "f16", tolerance = 2e-3 }
# int8 = { stored = "f32", versus = "q8_0", tolerance = 2e-2 }
# ///
"""onnxruntime's GroupQueryAttention on the CPU: appends and attends in one operator.

Past and present are one buffer for all tokens, so that a step copies nothing. int8 has one scale a KV head and channel.
"""

NEEDS = ["onnxruntime", "onnx", "numpy"]


def version():
    import onnxruntime

    return onnxruntime.__version__


def arms(setting):
    return ["GroupQueryAttention"]


def session_of(setting, element, cache_element, quantised):
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    s = setting
    side = [s.batch, s.kv_heads, s.tokens, s.head_dim]
    value = helper.make_tensor_value_info
    inputs = [value("q", element, [s.batch, 1, s.q_heads * s.head_dim])]
    inputs += [value(name, element, [s.batch, 1, s.kv_heads * s.head_dim]) for name in ("k", "v")]
    inputs += [value(name, cache_element, side) for name in ("past_k", "past_v")]
    inputs += [value("last", TensorProto.INT32, [s.batch]), value("total", TensorProto.INT32, [1])]
    names = [i.name for i in inputs]
    attributes = {"num_heads": s.q_heads, "kv_num_heads": s.kv_heads}
    if quantised:
        scales = [s.kv_heads * s.head_dim]
        inputs += [value(name, TensorProto.FLOAT, scales) for name in ("k_scale", "v_scale")]
        names += [""] * 5 + ["k_scale", "v_scale"]
        attributes |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
    outputs = [value("out", element, [s.batch, 1, s.q_heads * s.head_dim])]
    outputs += [value(name, cache_element, side) for name in ("present_k", "present_v")]
    node = helper.make_node("GroupQueryAttention", names, ["out", "present_k", "present_v"], domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "step", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model, full_check=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = s.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Cache:
    def __init__(self, setting, arm, tokens):
        import numpy as np
        import onnxruntime
        from onnx import TensorProto

        s = self.setting = setting
        quantised = s.format == "int8"
        kind = np.float16 if s.format == "f16" else np.float32
        element = TensorProto.FLOAT16 if s.format == "f16" else TensorProto.FLOAT
        self.session = session_of(s, element, TensorProto.INT8 if quantised else element, quantised)
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        sides = {"k": np.asarray(tokens.k), "v": np.asarray(tokens.v)}
        scales = {}
        self.held, self.size = {}, 0
        for name, side in sides.items():
            filled = np.zeros(side.shape, np.int8 if quantised else kind)
            if quantised:
                scale = np.abs(side).max(axis=(0, 2)) / 127  # [kv_heads, head_dim]
                scales[name + "_scale"] = value(np.ascontiguousarray(scale.reshape(-1), np.float32))
                filled[:, :, : s.base] = np.rint(side[:, :, : s.base] / scale[None, :, None, :])
            else:
                filled[:, :, : s.base] = side[:, :, : s.base]
            self.held[name] = value(filled)
            self.size += filled.nbytes
        self.bindings = [self.bind(tokens, i, kind, scales) for i in range(s.steps)]
        self.run = self.session.run_with_iobinding
        self.settings = f"past and present in one buffer, {s.threads} intra-op threads, inputs bound beforehand"

    def bind(self, tokens, i, kind, scales):
        import numpy as np
        import onnxruntime

        s = self.setting
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        at = s.base + i
        wide = lambda rows: value(np.ascontiguousarray(rows.reshape(s.batch, 1, -1), kind))  # noqa: E731
        inputs = {"q": wide(np.asarray(tokens.q)[:, :, i]), "k": wide(np.asarray(tokens.k)[:, :, at]), "v": wide(np.asarray(tokens.v)[:, :, at])}
        inputs |= {"last": value(np.full(s.batch, at, np.int32)), "total": value(np.array([at + 1], np.int32))}
        inputs |= {"past_k": self.held["k"], "past_v": self.held["v"], **scales}
        binding = self.session.io_binding()
        for name, held in inputs.items():
            binding.bind_ortvalue_input(name, held)
        self.out = getattr(self, "out", None) or value(np.zeros((s.batch, 1, s.q_heads * s.head_dim), kind))
        binding.bind_ortvalue_output("out", self.out)
        binding.bind_ortvalue_output("present_k", self.held["k"])
        binding.bind_ortvalue_output("present_v", self.held["v"])
        self.inputs = [*getattr(self, "inputs", []), inputs]  # alive as long as the bindings
        return binding

    def rewind(self):
        """Nothing to do: steps overwrite their rows."""

    def step(self, i):
        self.run(self.bindings[i])

    def attend(self):
        self.run(self.bindings[-1])

    def output(self):
        import numpy as np

        return np.ascontiguousarray(self.out.numpy(), np.float32)

    def bytes(self):
        return self.size
