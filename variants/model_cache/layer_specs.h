// Specs of a model whose layers differ: a default, then exceptions by layer number or by layer kind.
//
//   contiguous/kivi(bits=2) + 0-1,7:contiguous/f16 + sliding:contiguous/f16/ring(window=model)
//
// A layer takes the exception that names its number, else the one that names its kind, else the default; so
// the order of exceptions says nothing. The canonical form has them by number, then by kind, with the layers
// of equal specs joined; parse(print(s)) == s.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "variants/cache/spec.h"

namespace kv {

struct LayerRange {
  int first = 0, last = 0;  // both included
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

struct LayerException {
  std::vector<LayerRange> layers;  // ascending, apart from one another; empty where `kind` is given
  std::string kind;
  Spec spec;

  bool names(int layer) const;
  // The text before the ':', such as "0-1,7" or "sliding".
  std::string selector() const;
  friend bool operator==(const LayerException&, const LayerException&) = default;
};

inline constexpr int kMostLayers = 10000;

struct LayerSpecs {
  Spec fallback;
  std::vector<LayerException> exceptions;  // in canonical order

  LayerSpecs() = default;
  LayerSpecs(const Spec& spec)
      : fallback(spec) {}  // not explicit: one spec is the specs of layers that are alike

  // True if one spec is for all layers: `fallback`.
  bool is_one() const { return exceptions.empty(); }
  // True if `test` holds for the default or for an exception's spec.
  template <class Test>
  bool any(Test test) const {
    return test(fallback) || std::any_of(exceptions.begin(), exceptions.end(),
                                         [&](const LayerException& e) { return test(e.spec); });
  }
  // The canonical form: the key in every CSV, benchmark name and chart.
  std::string print() const;
  // The exceptions alone, as print() has them: "0-1:contiguous/f16 + sliding:paged"; empty if there are none.
  std::string print_exceptions() const;
  // The position of exception `index` in print().
  size_t position(size_t index) const;
  friend bool operator==(const LayerSpecs&, const LayerSpecs&) = default;
};

// Why no engine can deploy such a cache, by its stages' entries; empty if one can.
std::string_view oracle_of(const LayerSpecs& specs);

// The same with attention in 8 bits in every spec whose codec has it.
LayerSpecs with_int8_arithmetic(LayerSpecs specs);

// Throws std::invalid_argument with the text and a caret under the mistake, as parse_spec does; also where two
// exceptions name one layer's number, or one kind.
LayerSpecs parse_layer_specs(std::string_view text);

}  // namespace kv
