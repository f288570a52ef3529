"""Small random models of several families over a KvlabCache: transformers' own logits and tokens with the full f32 cache, and
what a spec evicts or quantises is really gone or quantised.

PyTorch and transformers take gigabytes, so `./kvlab test` does not install them, but `.ci/full` does: harness/python/README.md has the command.
"""

import math

import pytest

for package in ("torch", "transformers"):
    pytest.importorskip(package, reason=f"no PyTorch and transformers here: No module named {package}")

import torch  # noqa: E402
import transformers  # noqa: E402
from kvlab.transformers import KvlabCache, quality  # noqa: E402

SIZES = dict(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=None)  # fmt: skip
FAMILIES = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "mistral with a window": lambda: transformers.MistralConfig(**SIZES, sliding_window=12, head_dim=24),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=16),
    "gemma2": lambda: transformers.Gemma2Config(
        **SIZES, head_dim=16, sliding_window=10, query_pre_attn_scalar=20, attn_logit_softcapping=5.0),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=97, n_embd=64, n_layer=3, n_head=4, n_positions=256, initializer_range=0.2, eos_token_id=None, bos_token_id=1),
}  # fmt: skip
if not hasattr(transformers, "AttentionMaskInterface"):  # before 4.53
    FAMILIES = {name: FAMILIES[name] for name in ("llama", "mistral with a window", "qwen2")}
    FAMILIES["granite"] = lambda: transformers.GraniteConfig(**SIZES, attention_multiplier=0.3)
BOUND = 1e-5


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module", params=FAMILIES)
def models(request):
    """The same weights twice: with transformers' attention, and with kvlab's."""
    torch.manual_seed(3)
    own, ours = (
        transformers.AutoModelForCausalLM.from_config(FAMILIES[request.param](), attn_implementation=name).eval()
        for name in ("eager", "kvlab")
    )
    ours.load_state_dict(own.state_dict())
    return own, ours


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(FAMILIES["llama"](), attn_implementation="kvlab").eval()


def text(tokens, batch=1):
    return torch.randint(1, 97, (batch, tokens), generator=torch.Generator().manual_seed(5))


def distance(a, b):
    return ((a - b).abs().max() / b.abs().max().clamp(min=1)).item()


def test_logits_are_those_of_transformers(models):
    own, ours = models
    ids = text(48, batch=2)
    right = own(ids).logits
    cache = KvlabCache(max_tokens=64)
    logits = [ours(ids[:, :30], past_key_values=cache, use_cache=True).logits]  # a prompt longer than the windows
    logits += [ours(ids[:, i : i + 1], past_key_values=cache, use_cache=True).logits for i in range(30, 44)]
    logits += [ours(ids[:, 44:], past_key_values=cache, use_cache=True).logits]
    assert right.std() > 0.1
    assert distance(torch.cat(logits, 1), right) < BOUND
    assert cache.get_seq_length() == 48


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
def test_generation_is_token_identical(models, how):
    own, ours = models
    ids = text(9, batch=2)
    options = dict(max_new_tokens=24, do_sample=False, pad_token_id=0, **how)
    right = own.generate(ids, attention_mask=torch.ones_like(ids), **options)
    written = ours.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=KvlabCache(max_tokens=64), **options)
    assert torch.equal(written, right)


def test_windows_of_layers_hold_no_more_rows_than_the_window(models):
    own, ours = models
    window = getattr(own.config, "use_sliding_window", True) and getattr(own.config, "sliding_window", None)
    cache = KvlabCache(max_tokens=64)
    ours(text(40), past_key_values=cache, use_cache=True)
    kept = [len(cache.cache.kept(0, layer)) for layer in range(3)]
    kinds = getattr(own.config, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * 3
    assert kept == [window if kind == "sliding_attention" else 40 for kind in kinds]


def test_what_is_evicted_is_gone(llama):
    """A window of 8 in each of 3 layers: a token 40 places back cannot reach the prediction; with all rows it does."""
    one, other = text(60), text(60)
    other[0, 10] = (one[0, 10] + 5) % 96 + 1
    for spec, same in (("contiguous/f32/ring(window=8)", True), ("contiguous", False)):
        ends = []
        for ids in (one, other):
            cache = KvlabCache(spec, max_tokens=64)
            ends.append(llama(ids, past_key_values=cache, use_cache=True).logits[0, -1])
        assert torch.equal(*ends) == same


def test_specs_cost_what_they_should(llama):
    ids = text(80)
    specs = ["contiguous/f16", "paged(block=8)/q4_0", "contiguous/f32/ring(window=8)"]
    # head_dim is 16 here, and q4_0 has blocks of 32
    with pytest.raises(ValueError, match="multiple of 32"):
        quality(llama, ids, specs, prompt=16)
    specs[1] = "paged(block=8)/token(bits=4)"
    full, half, four, ring = quality(llama, ids, specs, prompt=16)
    assert full.kl == 0 and full.top1_agreement == 1 and full.predictions == 64
    assert 0 < half.kl < 1e-4 < four.kl < ring.kl
    assert half.bytes_payload * 2 == full.bytes_payload
    llama.config._attn_implementation = "eager"
    try:
        loss = torch.nn.functional.cross_entropy(llama(ids).logits[0, 15:-1], ids[0, 16:])
    finally:
        llama.config._attn_implementation = "kvlab"
    assert abs(full.perplexity / math.exp(loss) - 1) < 1e-4


def test_tokens_are_taken_back(llama):
    ids = text(20)
    cache = KvlabCache(max_tokens=64)
    right = llama(ids, past_key_values=cache, use_cache=True).logits[:, 15:]
    cache.crop(-5)
    assert cache.get_seq_length() == 15
    assert distance(llama(ids[:, 15:], past_key_values=cache, use_cache=True).logits, right) < BOUND
    cache.reset()
    assert cache.get_seq_length() == 0
    assert distance(llama(ids, past_key_values=cache, use_cache=True).logits[:, 15:], right) < BOUND


def test_mistakes_are_one_line(llama):
    ids = text(8, batch=2)
    padded = torch.ones_like(ids)
    padded[0, :3] = 0
    with pytest.raises(ValueError, match="no padding"):
        llama(ids, attention_mask=padded, past_key_values=KvlabCache(), use_cache=True)
    with pytest.raises(ValueError, match=r"needs past_key_values=KvlabCache\(spec\)"):
        llama(ids)
    with pytest.raises(ValueError, match="positions=absolute"):
        llama(ids, past_key_values=KvlabCache("contiguous/f32/ring(window=8,positions=cache)"), use_cache=True)
    with pytest.raises(ValueError, match="past max_tokens = 4"):
        llama(ids, past_key_values=KvlabCache(max_tokens=4), use_cache=True)
    cache = KvlabCache(max_tokens=64)
    llama(ids, past_key_values=cache, use_cache=True)
    with pytest.raises(ValueError, match="2 sequences, and this step is of 1"):
        llama(ids[:1], past_key_values=cache, use_cache=True)
    llama.config._attn_implementation = "sdpa"
    try:
        with pytest.raises(ValueError, match='needs the attention "kvlab"'):
            llama(ids, past_key_values=KvlabCache(), use_cache=True)
    finally:
        llama.config._attn_implementation = "kvlab"
