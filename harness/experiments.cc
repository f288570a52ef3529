#include "harness/experiments.h"

#include <array>
#include <stdexcept>

namespace kv {
namespace {

constexpr std::array kExperiments = std::to_array<Experiment>({
    {"decode", "steady-state decode at given lengths, hot and cold", timed_keys, run_timed_block},
    {"growth", "from an empty cache to a length, one token at a time, every step", timed_keys,
     run_timed_block},
});

}  // namespace

std::span<const Experiment> experiments() { return kExperiments; }

const Experiment& experiment_named(std::string_view name) {
  for (const Experiment& e : kExperiments) {
    if (e.name == name) return e;
  }
  throw std::logic_error("no experiment '" + std::string(name) + "'");
}

}  // namespace kv
