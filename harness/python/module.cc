// The extension module kvlab._kvlab: LockedCache as the class Cache. The .py files beside this one add the rest.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/python/arrays.h"
#include "harness/python/docstrings.h"
#include "harness/python/locked_cache.h"
#include "variants/list.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kv::python {
namespace {

// One sequence, whose arrays lack that dimension, or several.
struct Chosen {
  std::vector<int> sequences;
  bool several = false;

  explicit Chosen(nb::handle object) {
    int one = 0;
    if (!nb::isinstance<nb::bool_>(object) && nb::try_cast(object, one)) {
      sequences = {one};
    } else if (several = nb::try_cast(object, sequences); !several || sequences.empty()) {
      throw nb::type_error("sequence: a number that add_sequence() gave is needed, or a list of them");
    }
  }
  Wanted rows(const char* name, const char* heads_name, int heads, int64_t tokens, int dim) const {
    Wanted wanted{name, {{heads_name, heads}, {"n", tokens}, {"head_dim", dim}}};
    if (several) wanted.shape.insert(wanted.shape.begin(), {"sequences", std::ssize(sequences)});
    return wanted;
  }
  Wanted queries(const char* name, const Options& o, int64_t tokens) const {
    return rows(name, "q_heads", o.q_heads, tokens, o.head_dim);
  }
  Wanted keys(const char* name, const Options& o, int64_t tokens) const {
    return rows(name, "kv_heads", o.kv_heads, tokens, o.head_dim);
  }
};

// The outputs' array: `given`, or a new one of the same shape.
class Output {
 public:
  Output(nb::handle given, const Chosen& chosen, const Options& o, int64_t tokens) {
    if (!given.is_none()) {
      data_ = Array(given, chosen.queries("out", o, tokens), true).data();
      object_ = nb::borrow(given);
      return;
    }
    std::vector<size_t> shape;
    for (const Wanted::Dimension& d : chosen.queries("out", o, tokens).shape)
      shape.push_back(static_cast<size_t>(d.size));
    const auto made = new_array(shape);
    data_ = made.data();
    object_ = nb::cast(made);
  }
  float* data() const { return data_; }
  nb::object object() const { return object_; }

 private:
  float* data_ = nullptr;
  nb::object object_;
};

// Releases the interpreter's lock so that other threads continue.
template <class Work>
auto unlocked(Work work) {
  const nb::gil_scoped_release release;
  return work();
}

void append(LockedCache& cache, nb::handle sequence, int layer, nb::handle k, nb::handle v) {
  const Options& o = cache.options();
  const Chosen chosen(sequence);
  const Array keys(k, chosen.keys("k", o, kAnyTokens));
  const Array values(v, chosen.keys("v", o, keys.tokens()));
  const Step step{.sequences = chosen.sequences,
                  .layer = layer,
                  .n = keys.tokens(),
                  .k = keys.data(),
                  .v = values.data()};
  unlocked([&] { cache.append(step); });
}

nb::object attend(LockedCache& cache, nb::handle sequence, int layer, nb::handle q, nb::handle out,
                  float score_cap) {
  const Options& o = cache.options();
  const Chosen chosen(sequence);
  const Array queries(q, chosen.queries("q", o, kAnyTokens));
  const Output output(out, chosen, o, queries.tokens());
  const Step step{.sequences = chosen.sequences,
                  .layer = layer,
                  .n = queries.tokens(),
                  .q = queries.data(),
                  .out = output.data(),
                  .score_cap = score_cap};
  unlocked([&] { cache.attend(step); });
  return output.object();
}

nb::object step(LockedCache& cache, nb::handle sequence, int layer, nb::handle q, nb::handle k, nb::handle v,
                nb::handle out, nb::handle sink_logits, float score_cap) {
  const Options& o = cache.options();
  const Chosen chosen(sequence);
  const Array queries(q, chosen.queries("q", o, kAnyTokens));
  const Array keys(k, chosen.keys("k", o, queries.tokens()));
  const Array values(v, chosen.keys("v", o, queries.tokens()));
  std::optional<Array> sinks;
  if (!sink_logits.is_none()) sinks.emplace(sink_logits, Wanted{"sink_logits", {{"q_heads", o.q_heads}}});
  const Output output(out, chosen, o, queries.tokens());
  const Step step{.sequences = chosen.sequences,
                  .layer = layer,
                  .n = queries.tokens(),
                  .q = queries.data(),
                  .k = keys.data(),
                  .v = values.data(),
                  .out = output.data(),
                  .sink_logits = sinks ? sinks->data() : nullptr,
                  .score_cap = score_cap};
  unlocked([&] { cache.step(step); });
  return output.object();
}

nb::ndarray<nb::numpy, int64_t> kept(LockedCache& cache, int sequence, int layer, int kv_head) {
  auto tokens =
      std::make_unique<std::vector<int64_t>>(unlocked([&] { return cache.kept(sequence, layer, kv_head); }));
  nb::capsule owner(tokens.get(), [](void* p) noexcept { delete static_cast<std::vector<int64_t>*>(p); });
  std::vector<int64_t>& held = *tokens.release();
  return nb::ndarray<nb::numpy, int64_t>(held.data(), {held.size()}, owner);
}

nb::dict bytes(LockedCache& cache) {
  const HeldBytes held = unlocked([&] { return cache.bytes(); });
  nb::dict by_kind;
  by_kind["payload"] = held.payload;
  by_kind["metadata"] = held.metadata;
  by_kind["workspace"] = held.workspace;
  by_kind["disk"] = held.disk;
  by_kind["peak"] = held.peak;
  return by_kind;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const MemoryShort& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  }
}

void add_life(nb::class_<LockedCache>& type) {
  const auto make = [](LockedCache* self, const std::string& spec, int layers, int q_heads, int kv_heads,
                       int head_dim, int64_t max_tokens, int max_sequences,
                       const std::vector<int64_t>& windows, double rope_theta, bool rope_half_split,
                       int threads) {
    const Options options{layers,        q_heads, kv_heads,   head_dim,        max_tokens,
                          max_sequences, windows, rope_theta, rope_half_split, threads};
    unlocked([&] { return new (self) LockedCache(spec, options); });
  };
  type.def("__init__", make, "spec"_a, nb::kw_only(), "layers"_a, "q_heads"_a, "kv_heads"_a, "head_dim"_a,
           "max_tokens"_a, "max_sequences"_a = 1, "windows"_a = std::vector<int64_t>(),
           "rope_theta"_a = 10000.0, "rope_half_split"_a = true, "threads"_a = 0, kInitDoc);
  const auto call = nb::call_guard<nb::gil_scoped_release>();
  type.def("close", &LockedCache::close, call, kCloseDoc);
  type.def(
      "__enter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Cache"));
  type.def(
      "__exit__", [](LockedCache& cache, nb::args) { unlocked([&] { cache.close(); }); },
      nb::sig("def __exit__(self, *exception: object) -> None"));
  type.def("__repr__", [](LockedCache& cache) {
    const Options& o = cache.options();
    return "<kvlab.Cache '" + cache.spec() + "' layers=" + std::to_string(o.layers) +
           " q_heads=" + std::to_string(o.q_heads) + " kv_heads=" + std::to_string(o.kv_heads) +
           " head_dim=" + std::to_string(o.head_dim) + " max_tokens=" + std::to_string(o.max_tokens) +
           (cache.closed() ? " closed>" : ">");
  });
}

void add_sequences(nb::class_<LockedCache>& type) {
  const auto call = nb::call_guard<nb::gil_scoped_release>();
  type.def("add_sequence", &LockedCache::add_sequence, call, kAddSequenceDoc);
  type.def("fork", &LockedCache::fork, "sequence"_a, call, kForkDoc);
  type.def("release", &LockedCache::release, "sequence"_a, call, kReleaseDoc);
  type.def("truncate", &LockedCache::truncate, "sequence"_a, "tokens"_a, call, kTruncateDoc);
  const auto path_of = [](nb::handle path) {
    const auto text = nb::cast<std::string>(nb::module_::import_("os").attr("fsdecode")(path));
    if (text.find('\0') != std::string::npos)
      throw std::invalid_argument("path: it has a NUL, which no path holds");
    return text;
  };
  type.def(
      "save",
      [path_of](LockedCache& cache, int sequence, nb::handle path) {
        const std::string file = path_of(path);
        unlocked([&] { cache.save(sequence, file); });
      },
      "sequence"_a, "path"_a, nb::sig("def save(self, sequence: int, path: str | os.PathLike[str]) -> None"),
      kSaveDoc);
  type.def(
      "load",
      [path_of](LockedCache& cache, nb::handle path) {
        const std::string file = path_of(path);
        return unlocked([&] { return cache.load(file); });
      },
      "path"_a, nb::sig("def load(self, path: str | os.PathLike[str]) -> int"), kLoadDoc);
}

void add_steps(nb::class_<LockedCache>& type) {
  type.def("append", append, "sequence"_a.none(), "layer"_a, "k"_a.none(), "v"_a.none(),
           nb::sig("def append(self, sequence: int | Sequence[int], layer: int, k: Array, v: Array) -> None"),
           kAppendDoc);
  type.def("attend", attend, "sequence"_a.none(), "layer"_a, "q"_a.none(), "out"_a = nb::none(),
           nb::kw_only(), "score_cap"_a = 0.0f,
           nb::sig("def attend(self, sequence: int | Sequence[int], layer: int, q: Array, out: Array | None "
                   "= None, *, score_cap: float = 0.0) -> Array"),
           kAttendDoc);
  type.def(
      "step", step, "sequence"_a.none(), "layer"_a, "q"_a.none(), "k"_a.none(), "v"_a.none(),
      "out"_a = nb::none(), nb::kw_only(), "sink_logits"_a = nb::none(), "score_cap"_a = 0.0f,
      nb::sig("def step(self, sequence: int | Sequence[int], layer: int, q: Array, k: Array, v: Array, out: "
              "Array | None = None, *, sink_logits: Array | None = None, score_cap: float = 0.0) -> Array"),
      kStepDoc);
}

void add_facts(nb::class_<LockedCache>& type) {
  const auto call = nb::call_guard<nb::gil_scoped_release>();
  type.def("tokens", &LockedCache::tokens, "sequence"_a, "layer"_a = 0, call, kTokensDoc);
  type.def("kept", kept, "sequence"_a, "layer"_a = 0, "kv_head"_a = 0,
           nb::sig("def kept(self, sequence: int, layer: int = 0, kv_head: int = 0) -> "
                   "numpy.typing.NDArray[numpy.int64]"),
           kKeptDoc);
  type.def("bytes", bytes, nb::sig("def bytes(self) -> dict[str, int]"), kBytesDoc);
  type.def("kernel", &LockedCache::kernel, call, kKernelDoc);
  type.def_prop_ro("sequences", &LockedCache::sequences, call, "The sequences that are there, ascending.");
  type.def_prop_ro("closed", &LockedCache::closed, call, "Whether close() was called.");
  type.def_prop_ro("spec", &LockedCache::spec, "The spec in its canonical form.");
  type.def_prop_ro(
      "rotates", &LockedCache::rotates,
      "Whether q and k are wanted before RoPE, which the cache then applies itself (positions=cache).");
  type.def_prop_ro("layers", [](const LockedCache& c) { return c.options().layers; });
  type.def_prop_ro("q_heads", [](const LockedCache& c) { return c.options().q_heads; });
  type.def_prop_ro("kv_heads", [](const LockedCache& c) { return c.options().kv_heads; });
  type.def_prop_ro("head_dim", [](const LockedCache& c) { return c.options().head_dim; });
  type.def_prop_ro("max_tokens", [](const LockedCache& c) { return c.options().max_tokens; });
  type.def_prop_ro("max_sequences", [](const LockedCache& c) { return c.options().max_sequences; });
}

}  // namespace

// Names and one-line descriptions from a list of variants/list.h.
nb::dict described(const auto& entries) {
  nb::dict found;
  for (const auto* entry : entries)
    found[nb::str(entry->name.data(), entry->name.size())] = nb::str(entry->help.data(), entry->help.size());
  return found;
}

nb::dict variants() {
  nb::dict by_stage;
  by_stage["placement"] = described(kPlacements);
  by_stage["codec"] = described(kCodecs);
  by_stage["retention"] = described(kRetentions);
  by_stage["selection"] = described(kSelections);
  return by_stage;
}

NB_MODULE(_kvlab, m) {
  m.doc() = "kvlab's caches; import kvlab instead.";
  m.attr("__version__") = KVLAB_VERSION;
  m.def("variants", variants, nb::sig("def variants() -> dict[str, dict[str, str]]"),
        "What a spec can be made of: for each stage (placement, codec, retention, selection) the names, with "
        "what each is.");
  nb::register_exception_translator(translate);
  nb::class_<LockedCache> type(m, "Cache", kCacheDoc);
  add_life(type);
  add_sequences(type);
  add_steps(type);
  add_facts(type);
}

}  // namespace kv::python
