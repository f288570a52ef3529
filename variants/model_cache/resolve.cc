#include "variants/model_cache/resolve.h"

#include <algorithm>
#include <stdexcept>

#include "variants/cache/compatibility.h"
#include "variants/cache/near_names.h"

namespace kv {
namespace {

std::string numbered(size_t layer) { return "layer " + std::to_string(layer); }

// "full (layers 5, 11), sliding (layers 0-4, 6-10)" would be long: how many there are is what helps.
std::string kinds_text(std::span<const ModelLayer> layers) {
  std::string text;
  for (const std::string& kind : kinds_of(layers)) {
    const auto count =
        std::count_if(layers.begin(), layers.end(), [&](const ModelLayer& l) { return l.kind == kind; });
    text += (text.empty() ? "" : ", ") + kind + " (" + std::to_string(count) +
            (count == 1 ? " layer)" : " layers)");
  }
  return text;
}

void check_layers(std::span<const ModelLayer> layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const ModelLayer& layer = layers[i];
    const std::string who = "the model's " + numbered(i);
    if (layer.window < 0 || (layer.kind == "sliding" && layer.window == 0))
      throw std::invalid_argument(who + " is of kind '" + layer.kind + "' and has no window");
    if (layer.shares < 0) continue;
    if (static_cast<size_t>(layer.shares) >= i)
      throw std::invalid_argument(who + " shares the cache of layer " + std::to_string(layer.shares) +
                                  ", which must be an earlier one");
    const ModelLayer& source = layers[static_cast<size_t>(layer.shares)];
    if (source.shares >= 0 || !keeps_rows(source) || !keeps_rows(layer) || source.window != layer.window)
      throw std::invalid_argument(who + " shares the cache of layer " + std::to_string(layer.shares) +
                                  ", which must have one of its own, of the same window");
  }
}

// Fails at exception `index`.
[[noreturn]] void fail(const LayerSpecs& specs, size_t index, const std::string& what) {
  fail_in_spec(specs.print(), specs.position(index), what);
}

void check_numbers(const LayerSpecs& specs, size_t index, std::span<const ModelLayer> layers) {
  const LayerException& e = specs.exceptions[index];
  const int count = static_cast<int>(layers.size());
  if (e.layers.back().last >= count) {
    fail(specs, index,
         "there is no layer " + std::to_string(e.layers.back().last) + ": the model has layers 0 to " +
             std::to_string(count - 1) + ", of the kinds " + kinds_text(layers));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!e.names(static_cast<int>(i))) continue;
    if (!keeps_rows(layers[i]))
      fail(specs, index,
           numbered(i) + " keeps a state of constant size, which no spec describes; the kinds are " +
               kinds_text(layers));
    if (layers[i].shares >= 0)
      fail(specs, index,
           numbered(i) + " keeps nothing of its own: it reads the cache of layer " +
               std::to_string(layers[i].shares));
  }
}

void check_kind(const LayerSpecs& specs, size_t index, std::span<const ModelLayer> layers) {
  const std::string& kind = specs.exceptions[index].kind;
  const std::vector<std::string> kinds = kinds_of(layers);
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    fail(specs, index,
         "the model has no layers of kind '" + kind + "'; it has " + kinds_text(layers) +
             did_you_mean(kind, std::vector<std::string_view>(kinds.begin(), kinds.end())));
  }
  if (!keeps_rows({.kind = kind}))
    fail(specs, index, kind + " layers keep a state of constant size, which no spec describes");
}

// The exception that says what the layer has, or the number of exceptions for the default.
size_t exception_for(const LayerSpecs& specs, size_t layer, const std::string& kind) {
  const auto first = specs.exceptions.begin();
  const auto by_number = std::find_if(first, specs.exceptions.end(), [&](const LayerException& e) {
    return e.names(static_cast<int>(layer));
  });
  if (by_number != specs.exceptions.end()) return static_cast<size_t>(by_number - first);
  const auto by_kind = std::find_if(first, specs.exceptions.end(), [&](const LayerException& e) {
    return !e.kind.empty() && e.kind == kind;
  });
  return static_cast<size_t>(by_kind - first);
}

bool has_rows_of_its_own(const ModelLayer& layer) { return layer.shares < 0 && keeps_rows(layer); }

// A ring of the window, which rotates keys if the retention before it did.
Stage ring_of(const Spec& before, int64_t window) {
  const std::string positions = rotates_at_read(before) ? ",positions=cache" : "";
  return parse_spec("contiguous/f32/ring(window=" + std::to_string(window) + positions + ")").retention;
}

// `place`: which of the `of` layers that keep rows it is.
ResolvedLayer resolve_layer(const LayerSpecs& specs, size_t index, const ModelLayer& layer, size_t number,
                            int place, int of, int64_t max_tokens) {
  const bool is_default = index == specs.exceptions.size();
  ResolvedLayer resolved{is_default ? specs.fallback : specs.exceptions[index].spec};
  Stage& retention = resolved.spec.retention;
  for (const Parameter& p : retention_of(resolved.spec).parameters) {
    std::string& value = retention.values.at(std::string(p.name));
    if (p.word.empty() || value != p.word) continue;
    if (layer.window == 0) {
      fail_in_spec(specs.print(), is_default ? 0 : specs.position(index),
                   numbered(number) + " is of kind '" + layer.kind + "', which has no window: '" +
                       std::string(p.name) + "=" + value + "' needs one");
    }
    value = std::to_string(layer.window);
  }
  if (const auto of_layer = retention_of(resolved.spec).of_layer)
    retention = of_layer(retention, place, of, max_tokens);
  const int64_t kept = retention_of(resolved.spec).slots(retention, {max_tokens, max_tokens, max_tokens});
  if (layer.window > 0 && kept > layer.window) {
    retention = ring_of(resolved.spec, layer.window);
    resolved.cut = true;
  }
  return resolved;
}

}  // namespace

bool is_linear(const ModelLayer& layer) { return layer.kind == kLinear; }

bool keeps_rows(const ModelLayer& layer) {
  return layer.kind == "full" || layer.kind == "sliding" || layer.kind == "chunked";
}

std::vector<std::string> kinds_of(std::span<const ModelLayer> layers) {
  std::vector<std::string> kinds;
  for (const ModelLayer& layer : layers) {
    if (std::find(kinds.begin(), kinds.end(), layer.kind) == kinds.end()) kinds.push_back(layer.kind);
  }
  return kinds;
}

std::vector<ResolvedLayer> resolve(const LayerSpecs& specs, std::span<const ModelLayer> layers,
                                   int64_t max_tokens) {
  check_layers(layers);
  for (size_t i = 0; i < specs.exceptions.size(); ++i)
    (specs.exceptions[i].kind.empty() ? check_numbers : check_kind)(specs, i, layers);
  std::vector<ResolvedLayer> resolved;
  const ResolvedLayer* first = nullptr;  // that keeps rows
  resolved.reserve(layers.size());
  const auto of = static_cast<int>(std::count_if(layers.begin(), layers.end(), has_rows_of_its_own));
  int place = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!keeps_rows(layers[i])) {
      resolved.emplace_back();
      continue;
    }
    const bool shares = layers[i].shares >= 0;
    const size_t source = shares ? static_cast<size_t>(layers[i].shares) : i;
    const size_t index = exception_for(specs, source, layers[source].kind);
    resolved.push_back(shares ? resolved[source]
                              : resolve_layer(specs, index, layers[i], i, place++, of, max_tokens));
    if (!first) first = &resolved.back();
    if (rotates_at_read(resolved.back().spec) == rotates_at_read(first->spec)) continue;
    fail_in_spec(specs.print(), index == specs.exceptions.size() ? 0 : specs.position(index),
                 "positions=cache must be for all layers or for none, and " + numbered(i) +
                     " differs from those before");
  }
  return resolved;
}

}  // namespace kv
