"""Hugging Face models over kvlab's caches: what a spec evicts is gone, what it quantises is read quantised.

    from transformers import AutoModelForCausalLM
    from kvlab.transformers import KvlabCache, quality

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="kvlab")
    model.generate(ids, past_key_values=KvlabCache("paged/q8_0", max_tokens=2048))
    for row in quality(model, ids, ["contiguous/q4_0", "contiguous/f32/ring(window=256,sinks=4)"], prompt=512):
        print(row)

Importing this registers the attention "kvlab". Models run on the CPU; keys and values enter the cache as float32.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import Cache as HuggingFaceCache
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvlab._kvlab import Cache

NAME = "kvlab"
REFERENCE = "contiguous"


class KvlabCache(HuggingFaceCache):
    """past_key_values of a model whose attn_implementation is "kvlab".

    spec        as kvlab.Cache takes it; layers with a sliding window are cut to it in any case
    max_tokens  the most tokens of a sequence, prompt and answer together; placements that reserve ahead reserve so many
    threads     0: as many as OpenMP takes

    The cache itself is made at the first step, which shows the geometry and the number of sequences. Batches must not be padded:
    ValueError, as for any other mistake.
    """

    is_compileable = False

    def __init__(self, spec: str = REFERENCE, *, max_tokens: int = 4096, threads: int = 0) -> None:
        super().__init__(**({"layers": []} if "layers" in inspect.signature(HuggingFaceCache).parameters else {}))
        self.wanted, self.max_tokens, self.threads = spec, max_tokens, threads
        self.cache: Cache | None = None
        self.sequences: list[int] = []
        self.windows: list[int] = []
        self.waiting: torch.Tensor | None = None  # keys that our attention has not taken yet

    def __repr__(self) -> str:
        return f"KvlabCache({self.cache or self.wanted!r})"

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any):
        """Gives the new rows on to the attention, which stores them."""
        if self.waiting is not None:
            self.waiting = None
            raise ValueError('a KvlabCache needs the attention "kvlab": attn_implementation="kvlab" where the model is loaded')
        key_states.kvlab_cache = self
        self.waiting = key_states
        return key_states, value_states

    def step(self, module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: Any) -> torch.Tensor:
        """A layer's attention. q: [batch, q_heads, n, head_dim]; k, v: [batch, kv_heads, n, head_dim]; so is the result of q."""
        if self.cache is None:
            self.cache = self.made_for(module.config, q, k)
            self.sequences = [self.cache.add_sequence() for _ in range(len(q))]
        if len(q) != len(self.sequences):
            raise ValueError(f"the cache has {len(self.sequences)} sequences, and this step is of {len(q)}")
        window = how.pop("window")
        known = self.windows[module.layer_idx]
        if window is not None and window != known:
            raise ValueError(f"layer {module.layer_idx} has a window of {window} tokens, and its config says {known}")
        return torch.from_numpy(self.cache.step(self.sequences, module.layer_idx, as_f32(q), as_f32(k), as_f32(v), **how))

    def made_for(self, config: Any, q: torch.Tensor, k: torch.Tensor) -> Cache:
        self.windows = windows_of(config)
        made = Cache(
            self.wanted, layers=config.num_hidden_layers, q_heads=q.shape[1], kv_heads=k.shape[1], head_dim=q.shape[3],
            max_tokens=self.max_tokens, max_sequences=len(q), windows=self.windows, threads=self.threads,
        )  # fmt: skip
        if made.rotates:
            raise ValueError(f"'{made.spec}' has positions=cache; a transformers model has rotated its keys already: positions=absolute")
        return made

    def get_seq_length(self, layer_idx: int = 0, *_: Any) -> int:
        return self.cache.tokens(self.sequences[0], layer_idx) if self.cache else 0

    def get_mask_sizes(self, query_length: int | torch.Tensor, layer_idx: int = 0) -> tuple[int, int]:
        new = query_length if isinstance(query_length, int) else len(query_length)  # before 5.0: positions
        return self.get_seq_length(layer_idx) + new, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return self.max_tokens

    get_max_cache_shape = get_max_length

    def __len__(self) -> int:
        return self.cache.layers if self.cache else 0

    @property
    def is_initialized(self) -> bool:
        return self.cache is not None

    @property
    def is_croppable(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return len(self.sequences) or -1

    def reset(self) -> None:
        """Forgets all sequences, and what geometry they had."""
        if self.cache:
            self.cache.close()
        self.cache, self.sequences, self.waiting = None, [], None

    def crop(self, tokens: int) -> None:
        """Takes -tokens tokens back, or, where positive, all but so many. ValueError where the spec cannot."""
        length = self.get_seq_length()
        keep = max(0, length + tokens) if tokens <= 0 else min(tokens, length)
        for sequence in self.sequences if keep < length else ():
            self.cache.truncate(sequence, keep)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Entry i becomes what entry beam_idx[i] was: sequences nobody goes on with go, the others fork."""
        wanted = [self.sequences[i] for i in beam_idx.tolist()]
        for sequence in set(self.sequences) - set(wanted):
            self.cache.release(sequence)
        taken: set[int] = set()
        for i, sequence in enumerate(wanted):
            if sequence in taken:
                wanted[i] = self.cache.fork(sequence)
            taken.add(sequence)
        self.sequences = wanted

    def batch_repeat_interleave(self, repeats: int) -> None:
        raise ValueError("a KvlabCache cannot be repeated once it is made; give generate() the whole batch")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        raise ValueError("a KvlabCache keeps its sequences; give generate() the whole batch")


def windows_of(config: Any) -> list[int]:
    """The window of each layer as transformers' configs say it, 0 for none. Throws ValueError for a layer that keeps no rows."""
    kinds = getattr(config, "layer_types", None) or []
    for i, kind in enumerate(kinds):
        if kind not in ("full_attention", "sliding_attention"):
            raise ValueError(f"layer {i} is of kind '{kind}'; a KvlabCache has layers of full and of sliding attention")
    if not kinds and getattr(config, "cache_implementation", None) == "hybrid":
        raise ValueError("layers of full and of sliding attention in one model need transformers 4.53 or newer")
    window = (getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None)) or 0
    return [window if not kinds or kinds[i] == "sliding_attention" else 0 for i in range(config.num_hidden_layers)]


def as_f32(states: torch.Tensor) -> torch.Tensor:
    return states.detach().to(torch.float32).contiguous()


def attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any = None,
    dropout: float = 0.0, scaling: float | None = None, sliding_window: int | None = None, softcap: float | None = None,
    s_aux: torch.Tensor | None = None, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """The attention "kvlab" of transformers: over what the KvlabCache keeps. Returns [batch, n, q_heads, head_dim] in query's type."""
    cache = getattr(key, "kvlab_cache", None)
    if cache is None:
        raise ValueError('the attention "kvlab" needs past_key_values=KvlabCache(spec)')
    cache.waiting = None
    if dropout or not getattr(module, "is_causal", True):
        raise ValueError('the attention "kvlab" is causal and has no dropout; model.eval() turns that off')
    if attention_mask is not None:
        check_mask(attention_mask, cache.get_seq_length(module.layer_idx), sliding_window)
    size = query.shape[-1]
    factor = 1.0 if scaling is None else scaling * math.sqrt(size)  # the kernel divides by sqrt(head_dim)
    out = cache.step(
        module, query if factor == 1.0 else query * factor, key, value, window=sliding_window,
        score_cap=softcap or 0.0, sink_logits=None if s_aux is None else as_f32(s_aux),
    )  # fmt: skip
    return out.transpose(1, 2).to(query.dtype), None


def mask(*_: Any, attention_mask: torch.Tensor | None = None, **__: Any) -> None:
    """No mask: the cache knows who sees whom. Throws ValueError for padding."""
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError("a KvlabCache has no padding; give generate() prompts of equal length, or one at a time")


def check_mask(given: torch.Tensor, past: int, window: int | None) -> None:
    """Models that make masks by themselves (all before transformers 4.53) give one, [batch, 1, n, columns]. ValueError where it hides
    what the cache shows, as padding does, or shows what is to come.
    """
    new, columns = given.shape[-2:]
    row = past + torch.arange(new)[:, None]
    column = max(0, past + new - columns) + torch.arange(columns)
    shown = (column <= row) & (column > row - (window or past + new + 1))
    sees = given if given.dtype == torch.bool else given == 0
    if bool((shown & ~sees).any()) or bool((sees & (column > row)).any()):
        raise ValueError('the attention "kvlab" takes no mask of its own, and no padding')


ALL_ATTENTION_FUNCTIONS[NAME] = attention
if hasattr(transformers, "AttentionMaskInterface"):
    transformers.AttentionMaskInterface.register(NAME, mask)


@dataclass(frozen=True)
class Quality:
    """A spec's effect on a model's predictions of a text, in nats a token, against the full f32 cache on the same tokens."""

    spec: str
    predictions: int
    perplexity: float
    kl: float  # mean KL divergence from the full f32 cache's predictions
    top1_agreement: float  # share of predictions whose likeliest token is the same
    bytes_payload: int  # at the end, of all layers


@torch.no_grad()
def quality(model: PreTrainedModel, input_ids: torch.Tensor, specs: Iterable[str], *, prompt: int = 1) -> list[Quality]:
    """Perplexity and KL divergence of a text [1, tokens] for each spec, the full f32 cache first.

    The first `prompt` tokens come as one step, all others one by one, as when a model writes. Every prediction of a token after the
    prompt counts.
    """
    tokens = input_ids.shape[1]
    if input_ids.shape[0] != 1 or not 1 <= prompt < tokens:
        raise ValueError(f"input_ids [1, tokens] with more than prompt = {prompt} tokens are needed, not {tuple(input_ids.shape)}")
    caches = [KvlabCache(spec, max_tokens=tokens) for spec in [REFERENCE, *specs]]
    sums = torch.zeros(len(caches), 3, dtype=torch.float64)
    for first, end in [(0, prompt), *((i, i + 1) for i in range(prompt, tokens - 1))]:
        steps = [model(input_ids[:, first:end], past_key_values=c, use_cache=True).logits[0, -1] for c in caches]
        logs = torch.log_softmax(torch.stack(steps).double(), dim=-1)
        sums[:, 0] -= logs[:, input_ids[0, end]]
        sums[:, 1] += (logs[0].exp() * (logs[0] - logs)).sum(-1)
        sums[:, 2] += logs.argmax(-1) == logs[0].argmax()
    count = tokens - prompt
    rows = (sums / count).tolist()
    return [
        Quality(c.cache.spec, count, math.exp(loss), kl, same, c.cache.bytes()["payload"]) for c, (loss, kl, same) in zip(caches, rows)
    ]
