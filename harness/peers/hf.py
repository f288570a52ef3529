# /// script
# dependencies = ["torch==2.15.0", "transformers==5.23.0", "optimum-quanto>=0.2.7", "numpy>=2"]
# [tool.kvlab.formats]
# dynamic_f32 = { stored = "f32", tolerance = 1e-5 }
# dynamic_bf16 = { stored = "bf16", tolerance = 2e-2 }
# static_bf16 = { stored = "bf16", tolerance = 2e-2 }
# quantized_4 = { stored = "f32", versus = "kivi(bits=4)", tolerance = 0.2 }
# ///
"""The caches of Hugging Face transformers, as `generate` uses them: update(), then attention by its "sdpa" function.

  dynamic    DynamicCache, which concatenates all rows at every step
  static     StaticCache, pre-allocated for all tokens, with a mask over those that have not come
  quantized  QuantizedCache of 4 bits (quanto): the newest 128 rows stay raw, the others are decoded at every step
"""

NEEDS = ["torch", "transformers", "numpy"]


def version():
    import torch
    import transformers

    return f"{transformers.__version__} (torch {torch.__version__})"


def arms(setting):
    return [setting.format.rpartition("_")[0]]


def tensor_of(view, kind):
    import numpy as np
    import torch

    return torch.from_numpy(np.asarray(view)).to(kind)


class Layer:
    """The attributes of a layer that the attention function reads."""

    is_causal = False
    training = False
    sliding_window = None
    layer_idx = 0

    def __init__(self, setting, config):
        self.num_key_value_groups = setting.group
        self.config = config


class Cache:
    def __init__(self, setting, arm, tokens):
        import torch
        from transformers import LlamaConfig
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        torch.set_num_threads(setting.threads)
        torch.set_grad_enabled(False)
        s, self.arm = setting, arm
        self.setting, self.torch, self.attention = s, torch, sdpa_attention_forward
        kind = torch.bfloat16 if s.format.endswith("bf16") else torch.float32
        self.config = LlamaConfig(num_hidden_layers=1, num_attention_heads=s.q_heads, num_key_value_heads=s.kv_heads,
                                  head_dim=s.head_dim, hidden_size=s.q_heads * s.head_dim, max_position_embeddings=s.tokens)  # fmt: skip
        self.config._attn_implementation = "sdpa"
        self.layer = Layer(s, self.config)
        sides = [tensor_of(view, kind) for view in (tokens.k, tokens.v)]
        self.new = [[side[:, :, s.base + i : s.base + i + 1].clone() for side in sides] for i in range(s.steps)]
        self.q = [tensor_of(tokens.q, kind)[:, :, i : i + 1].contiguous() for i in range(s.steps)]
        self.whole, self.settings = self.made()
        self.settings += f", sdpa attention, {s.threads} threads"
        self.whole.update(*(side[:, :, : s.base].clone() for side in sides), 0)
        self.first = self.state()

    def made(self):
        from transformers import DynamicCache, QuantizedCache, StaticCache

        if self.arm == "dynamic":
            return DynamicCache(), "DynamicCache"
        if self.arm == "static":
            return StaticCache(config=self.config, max_cache_len=self.setting.tokens), "StaticCache with a mask"
        try:
            cache = QuantizedCache(backend="quanto", config=self.config, nbits=4, residual_length=128)
        except ImportError as why:
            raise Unsupported(str(why)) from None  # noqa: F821  # serve.py gives it
        return cache, "QuantizedCache, quanto, 4 bits, the newest 128 rows raw"

    def state(self):
        """References to the cache's tensors: dynamic and quantised caches make new tensors at every step."""
        return dict(self.whole.layers[0].__dict__)

    def rewind(self):
        """Restores the state before the steps. A static cache overwrites their rows."""
        layer = self.whole.layers[0]
        layer.__dict__.update(self.first)
        if self.arm == "static":
            layer.cumulative_length.fill_(self.setting.base)

    def step(self, i):
        if self.arm == "quantized" and i == self.setting.steps - 1:
            self.before = self.state()
        self.seen = self.whole.update(*self.new[i], 0)
        self.attend_at(i)

    def attend_at(self, i):
        mask = None
        if self.arm == "static":
            count = self.setting.base + i + 1
            mask = self.torch.arange(self.setting.tokens)[None, None, None] < count
        self.out, _ = self.attention(self.layer, self.q[i], *self.seen, mask, scaling=self.setting.head_dim**-0.5)

    def attend(self):
        last = self.setting.steps - 1
        if self.arm != "quantized":
            return self.attend_at(last)
        self.whole.layers[0].__dict__.update(self.before)  # it decodes its rows in update()
        return self.step(last)

    def output(self):
        return self.out.float().reshape(self.setting.batch, self.setting.q_heads, self.setting.head_dim).contiguous().numpy()

    def bytes(self):
        layer = self.whole.layers[0]
        held = [layer.keys, layer.values]
        for coded in (getattr(layer, "_quantized_keys", None), getattr(layer, "_quantized_values", None)):
            if coded is not None:
                held += [coded._data._data, coded._scale, coded._shift]
        return sum(tensor.nbytes for tensor in held)
