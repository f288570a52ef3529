#include "harness/config/axes.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "harness/config/braces.h"
#include "harness/config/placeholder.h"
#include "harness/config/request_lengths.h"
#include "harness/io/suggestion.h"
#include "kernels/attention.h"

namespace kv::config {
namespace {

LayerSpecs read_variant(const Section& section, const std::string& text) {
  try {
    return parse_layer_specs(text);
  } catch (const std::invalid_argument& e) {
    section.fail("variants", std::string("has a mistake: ") + e.what());
  }
}

// Of a codec that can multiply in 8 bits.
LayerSpecs with_arithmetic(LayerSpecs specs, const Axes& axes) {
  return axes.arithmetic == "int8" ? with_codec_parameter(std::move(specs), "arithmetic", "int8") : specs;
}

std::string at_budget(const Section& section, const std::string& written, int64_t budget) {
  try {
    return substitute_budget(written, budget);
  } catch (const std::invalid_argument& e) {
    section.fail("variants", "has a mistake in '" + written + "': " + e.what());
  }
}

std::vector<std::string> without_lists(const Section& section, const std::string& written) {
  try {
    return expand_braces(written);
  } catch (const std::invalid_argument& e) {
    section.fail("variants", "has a mistake in '" + written + "': " + e.what());
  }
}

// Each variant, for each item of its lists, at each budget if it depends on it.
void expand_variants(const Section& section, Axes& axes) {
  axes.variants.clear();
  axes.series.clear();
  axes.uncached = false;
  const auto add = [&](const std::string& series, const std::string& text) {
    if (text == kUncached) {
      if (std::exchange(axes.uncached, true)) section.fail("variants", "names 'none' twice");
      return;
    }
    axes.variants.push_back(with_arithmetic(read_variant(section, text), axes));
    axes.series.push_back(series);
    if (std::count(axes.variants.begin(), axes.variants.end(), axes.variants.back()) > 1)
      section.fail("variants", "names '" + axes.variants.back().print() + "' twice");
  };
  for (const std::string& written : axes.written) {
    for (const std::string& series : without_lists(section, written)) {
      if (!has_placeholder(series)) {
        add(series, series);
        continue;
      }
      if (axes.budget.empty())
        section.fail("variants", "has '" + series +
                                     "', but there is no axis budget = [...]; a list in braces has a comma, "
                                     "as {f16,q8_0}");
      for (const int64_t budget : axes.budget) add(series, at_budget(section, series, budget));
    }
  }
}

// Puts the baseline first: experiments compare with their first variant.
void order_by_baseline(Section& section, Axes& axes) {
  const bool own = section.has("baseline");
  axes.baseline = section.text("baseline", axes.baseline);
  if (axes.baseline.empty() || axes.variants.empty()) return;
  const std::string key = own ? "baseline" : "variants";
  std::vector<std::string> names;
  for (const LayerSpecs& spec : axes.variants) names.push_back(spec.print());
  std::string wanted = axes.baseline;
  try {
    wanted = with_arithmetic(parse_layer_specs(wanted), axes).print();
  } catch (const std::invalid_argument&) {
    // A text that is no spec is none of the variants either: what is near says more than a parser.
  }
  const auto at = std::find(names.begin(), names.end(), wanted) - names.begin();
  if (at == std::ssize(names)) {
    section.fail(
        key, own ? "'" + wanted + "' is none of the variants" + io::did_you_mean(wanted, names)
                 : "lacks the baseline '" + wanted + "' of [sweep]; give this table a baseline of its own");
  }
  std::rotate(axes.variants.begin(), axes.variants.begin() + at, axes.variants.begin() + at + 1);
  std::rotate(axes.series.begin(), axes.series.begin() + at, axes.series.begin() + at + 1);
}

void read_lengths(Section& section, std::vector<std::string>& lengths) {
  lengths = section.texts("lengths", lengths);
  refuse_repeats(section, "lengths", lengths);
  for (const std::string& text : lengths) {
    try {
      check_lengths(text);
    } catch (const std::invalid_argument& e) {
      section.fail("lengths", std::string("has a mistake: ") + e.what());
    }
  }
}

void read_tokens(Section& section, const std::string& key, std::vector<int64_t>& values) {
  values = section.token_list(key, values, 1, kMaxTokens);
  refuse_repeats(section, key, values);
}

void read_small_integers(Section& section, const std::string& key, int64_t most, std::vector<int>& values) {
  const std::vector<int64_t> read =
      section.integers(key, std::vector<int64_t>(values.begin(), values.end()), 1, most);
  refuse_repeats(section, key, read);
  values.assign(read.begin(), read.end());
}

void read_workloads(Section& section, const std::vector<std::string>& known,
                    std::vector<std::string>& workloads) {
  workloads = section.texts("workload", workloads);
  refuse_repeats(section, "workload", workloads);
  for (const std::string& name : workloads) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    section.fail("workload",
                 "must be among " + list + ", not '" + name + "'" + io::did_you_mean(name, known));
  }
}

// A peer's name stands for all of its formats.
void read_peers(Section& section, const Catalog& catalog, std::vector<std::string>& peers) {
  if (!section.has("peers")) return;
  const std::vector<std::string> known = catalog.peers();
  peers.clear();
  for (const std::string& written : section.texts("peers", {})) {
    const auto before = peers.size();
    for (const std::string& format : known) {
      if (format == written || format.starts_with(written + "/")) peers.push_back(format);
    }
    if (peers.size() > before) continue;
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    section.fail("peers", "must be among " + list + ", or a name before the slash, not '" + written + "'" +
                              io::did_you_mean(written, known));
  }
  refuse_repeats(section, "peers", peers);
}

std::string_view length_key(LengthAxis axis) {
  switch (axis) {
    case LengthAxis::kLengths:
      return "lengths";
    case LengthAxis::kDistance:
      return "distance";
    case LengthAxis::kRequests:
      return "memory";
    case LengthAxis::kSeqLen:
      break;
  }
  return "seq_len";
}

// Axes that only some experiments have.
constexpr std::array kSomeAxes =
    std::to_array<std::string_view>({"seq_len", "lengths", "distance", "passage", "chunk", "peers"});

bool has_axis(const ExperimentInfo& experiment, std::string_view key) {
  return key == length_key(experiment.length_axis) ||
         std::find(experiment.own_axes.begin(), experiment.own_axes.end(), key) != experiment.own_axes.end();
}

}  // namespace

void read_axes(Section& section, Axes& axes, const Catalog& catalog) {
  axes.written = section.texts("variants", axes.written);
  read_tokens(section, "budget", axes.budget);
  expand_variants(section, axes);
  order_by_baseline(section, axes);
  read_tokens(section, "seq_len", axes.seq_len);
  std::sort(axes.seq_len.begin(), axes.seq_len.end());
  read_small_integers(section, "batch", 4096, axes.batch);
  read_tokens(section, "chunk", axes.chunk);
  read_lengths(section, axes.lengths);
  read_tokens(section, "distance", axes.distance);
  read_tokens(section, "passage", axes.passage);
  read_small_integers(section, "kv_heads", 4096, axes.kv_heads);
  read_small_integers(section, "head_dim", kMaxHeadDim, axes.head_dim);
  read_small_integers(section, "threads", 4096, axes.threads);
  read_workloads(section, catalog.workloads, axes.workload);
  read_peers(section, catalog, axes.peers);
}

void refuse_foreign_axes(Section& own, const ExperimentInfo& experiment, const Catalog& catalog) {
  for (const std::string_view key : kSomeAxes) {
    if (!own.has(std::string(key)) || has_axis(experiment, key)) continue;
    std::string owners;
    for (const ExperimentInfo& other : catalog.experiments) {
      if (has_axis(other, key)) owners += (owners.empty() ? "" : ", ") + std::string(other.name);
    }
    own.fail(std::string(key), "is no axis of " + std::string(experiment.name) + ", but of " + owners);
  }
}

std::string table_of(std::string_view key) {
  const auto among = [&](std::initializer_list<std::string_view> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  if (among({"preset", "config", "q_heads", "layers"})) return "[model]";
  if (among({"family", "dump", "model", "tokenizer", "text", "weights", "weights_type"})) return "[workload]";
  if (among({"variants", "baseline", "budget", "seq_len", "batch", "chunk", "lengths", "distance", "passage",
             "kv_heads", "head_dim", "threads", "workload", "peers"}))
    return "[sweep], or a table of one experiment, as [[decode]]";
  if (among({"repetitions", "steps",       "retries",      "cold_steps", "draft",       "accept",
             "attend",      "aa_test",     "null_ab",      "allocator",  "step_tokens", "prompt",
             "passages",    "temperature", "samples",      "padding",    "unmasked",    "recompute",
             "stride",      "context",     "memory_share", "memory",     "peer_timeout"}))
    return "[measure], or a table of one experiment, as [[decode]]";
  if (among({"trace", "arrivals", "requests", "output", "max_running", "watermark", "preempt", "limit",
             "prefix_blocks", "share", "prefix"}))
    return "[replay]";
  return "";
}

}  // namespace kv::config
