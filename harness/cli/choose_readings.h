// The runs of `kvlab choose`: what it measures, where, and how long that may take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/choose/choice.h"
#include "harness/choose/solver.h"
#include "harness/experiments/experiment.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::cli {

struct ChooseOptions;

// What all steps of a choice know.
struct ChoiceQuestion {
  const ChooseOptions& options;
  int64_t context_tokens, memory_bytes;
  std::filesystem::path folder;
  int64_t window;             // tokens of a window of the text
  int windows;                // of the calibration, and of the confirmation
  bool mixture;               // also the solver's
  ModelShape shape = {};      // at the whole context, once it is known
  std::string left_out = {};  // what --minutes had no room for; empty: nothing
};

// One run: an experiment of the text's windows from number `first_window` on.
struct Reading {
  std::string name;
  const experiments::Experiment* experiment;
  int64_t window;  // tokens
  int windows, first_window;
  std::vector<std::string> specs;
  std::string more = {};  // lines of the experiment's table
};

// The model's shape at the whole context, without measuring anything. What a mistake leaves in the folder is removed.
ModelShape shape_at(const ChoiceQuestion& question, const Reading& reading);

// Losses above the full f32 cache, by spec. Empty if the run was stopped.
std::map<std::string, choose::ExtraLoss> losses(const ChoiceQuestion& question, const Reading& reading);

// What each codec of a mixture does in each layer's K or V alone, on a part of the windows of the calibration. Empty if stopped.
choose::LayerLosses losses_by_layer(const ChoiceQuestion& question);

struct Speeds {
  bool finished = false;  // not stopped
  std::map<std::string, choose::Rate> by_spec = {};
  std::string missing = {};  // why a spec has none
};
// Times decode steps of the whole model with each cache, holding the context of all users.
Speeds speeds_of(const ChoiceQuestion& question, const std::vector<std::string>& specs);

// Windows of so many tokens that a loss is bounded from, and those that are read where the user says nothing else.
int fewest_windows(int64_t window);
int usual_windows(int64_t window);

// Reads one window as `calibration` does, and takes fewer windows, shorter ones than the context unless the user gave their length, or
// no mixture, to keep --minutes. False if stopped. Throws std::invalid_argument where the fewest windows do not fit.
bool fit_into_minutes(ChoiceQuestion& question, Reading calibration, size_t most_confirmed);

}  // namespace kv::cli
