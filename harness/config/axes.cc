#include "harness/config/axes.h"

#include <stdexcept>
#include <utility>

#include "harness/config/braces.h"
#include "harness/io/suggestion.h"
#include "kernels/attention.h"

namespace kv::config {
namespace {

// The result of `read`; `mistake` begins the message where it throws.
auto read_variant(const Section& section, const std::string& mistake, const auto& read) {
  try {
    return read();
  } catch (const std::invalid_argument& e) {
    section.fail("variants", mistake + e.what());
  }
}

// Sets the arithmetic of every codec that can multiply in 8 bits.
LayerSpecs with_arithmetic(LayerSpecs specs, const Axes& axes) {
  return axes.arithmetic == "int8" ? with_int8_arithmetic(std::move(specs)) : specs;
}

// Expands each variant's lists, and each budget if the variant depends on it.
void expand_variants(const Section& section, Axes& axes) {
  axes.variants.clear();
  axes.series.clear();
  axes.uncached = false;
  const auto add = [&](const std::string& series, const std::string& text) {
    if (text == kUncached) {
      if (std::exchange(axes.uncached, true)) section.fail("variants", "names 'none' twice");
      return;
    }
    axes.variants.push_back(with_arithmetic(
        read_variant(section, "has a mistake: ", [&] { return parse_layer_specs(text); }), axes));
    axes.series.push_back(series);
    if (std::count(axes.variants.begin(), axes.variants.end(), axes.variants.back()) > 1)
      section.fail("variants", "names '" + axes.variants.back().print() + "' twice");
  };
  for (const std::string& written : axes.written) {
    const auto in = [](const std::string& text) { return "has a mistake in '" + text + "': "; };
    for (const std::string& series :
         read_variant(section, in(written), [&] { return expand_braces(written); })) {
      if (!has_placeholder(series)) {
        add(series, series);
        continue;
      }
      if (axes.budget.empty())
        section.fail("variants",
                     "has '" + series +
                         "', but no axis budget = [...]; a list in braces needs a comma, like {f16,q8_0}");
      for (const int64_t budget : axes.budget)
        add(series, read_variant(section, in(series), [&] { return substitute_budget(series, budget); }));
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
    // A text that is no spec matches no variant: the nearest variant helps more than a parser's message.
  }
  const auto at = std::find(names.begin(), names.end(), wanted) - names.begin();
  if (at == std::ssize(names)) {
    section.fail(key,
                 own ? "'" + wanted + "' is not one of the variants" + io::did_you_mean(wanted, names)
                     : "lacks the baseline '" + wanted + "' of [sweep]; give this table its own baseline");
  }
  std::rotate(axes.variants.begin(), axes.variants.begin() + at, axes.variants.begin() + at + 1);
  std::rotate(axes.series.begin(), axes.series.begin() + at, axes.series.begin() + at + 1);
}

void read_tokens(Section& section, const std::string& key, std::vector<int64_t>& values) {
  values = token_list()(section, key, values);
}

void read_small_integers(Section& section, const std::string& key, int64_t most, std::vector<int>& values) {
  const std::vector<int64_t> read =
      section.integers(key, std::vector<int64_t>(values.begin(), values.end()), 1, most);
  refuse_repeats(section, key, read);
  values.assign(read.begin(), read.end());
}

void read_workloads(Section& section, const std::vector<std::string>& known,
                    std::vector<std::string>& workloads) {
  workloads = section.texts("workload", workloads, known);
  refuse_repeats(section, "workload", workloads);
}

// Calls `use` for each of an experiment's axes and keys.
template <class Use>
void each_key(const ExperimentInfo& experiment, const Use& use) {
  for (const AnyAxis* axis : experiment.axes) use(axis->key());
  for (const AnyKey* key : experiment.keys) use(*key);
}

// The experiments that have a key of this name.
std::string owners_of(std::string_view name, const Catalog& catalog) {
  std::string owners;
  for (const ExperimentInfo& experiment : catalog.experiments) {
    bool has = false;
    each_key(experiment, [&](const AnyKey& key) { has |= key.name == name; });
    if (has) owners += (owners.empty() ? "" : ", ") + std::string(experiment.name);
  }
  return owners;
}

void read_key(const AnyKey& key, Section& section, Settings& settings) {
  key.read(section, settings);
  section.explain(key.name, key.help);
}

}  // namespace

void read_axes(Section& section, Axes& axes, const Catalog& catalog) {
  axes.written = section.texts("variants", axes.written);
  read_tokens(section, "budget", axes.budget);
  expand_variants(section, axes);
  order_by_baseline(section, axes);
  read_small_integers(section, "kv_heads", 4096, axes.kv_heads);
  read_small_integers(section, "head_dim", kMaxHeadDim, axes.head_dim);
  read_small_integers(section, "threads", 4096, axes.threads);
  read_workloads(section, catalog.workloads, axes.workload);
}

void read_shared_keys(Section& section, SharedTable table, const Catalog& catalog, Settings& settings) {
  for (const ExperimentInfo& experiment : catalog.experiments) {
    each_key(experiment, [&](const AnyKey& key) {
      if (key.table == table) read_key(key, section, settings);
    });
  }
}

void read_own_keys(Section& own, const ExperimentInfo& experiment, Settings& settings) {
  each_key(experiment, [&](const AnyKey& key) { read_key(key, own, settings); });
}

void refuse_foreign_keys(const Section& own, const ExperimentInfo& experiment, const Catalog& catalog) {
  for (const std::string& name : own.unread()) {
    const std::string owners = owners_of(name, catalog);
    if (!owners.empty())
      own.fail(name, "is not a key of " + std::string(experiment.name) + " but of " + owners);
  }
}

}  // namespace kv::config
