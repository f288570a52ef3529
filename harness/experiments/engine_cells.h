// Cells of whole engines (harness/peers/llama.cpp.py): the engine's own programs read a point's windows with its own weights'
// arithmetic and one of its caches, beside kvlab's cells.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/config/key.h"
#include "harness/measure/cell.h"
#include "harness/measure/teacher_forcing.h"
#include "harness/peers/process.h"

namespace kv::experiments {

extern const config::Key<std::vector<std::string>> kEnginesKey;

bool has_engines(const measure::SweepPoint& point);
bool runs_engines(const config::Config& config, const config::ExperimentConfig& sweep);

// Adds the cells of the config's engines, marked as unsupported if one is not installed or cannot run here.
void add_engines(measure::SweepPoint& point);

// How many cells' divergences agree with those of kvlab's cache of the same bits, and which do not; empty without engines.
std::string engines_beside_caches(std::span<const results::Row* const> cells);

class EngineCells {
 public:
  explicit EngineCells(const measure::SweepPoint& point) : point_(point) {}

  // Reads the passages' windows and sets the cell's columns.
  void read(measure::Cell& cell, const measure::Passages& passages);
  // Seconds of each repetition, in which the engine ran.
  struct Times {
    std::vector<double> step_us, prompt_us;  // a token; the prompt
  };
  // `depth`: tokens before the timed ones; `prompt`: reading them is timed, too.
  Times time(measure::Cell& cell, int64_t depth, bool prompt);

 private:
  nlohmann::json ask(const measure::Cell& cell, nlohmann::json request);

  const measure::SweepPoint& point_;
  peers::SharedFloats nothing_{1};
  std::unique_ptr<peers::Process> process_;
};

}  // namespace kv::experiments
