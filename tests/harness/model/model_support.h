// Helpers of the tests of models: the real data if it is there, and refusals.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/io/python.h"
#include "harness/model/model.h"
#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv::test {

// The folder of real models and texts; tests skip where it is absent.
inline std::string data_folder() {
  const char* set = std::getenv("KVLAB_DATA");
  return set ? set : KVLAB_SOURCE_DIR "/../shared/data";
}

inline bool data_is_absent() { return !std::filesystem::exists(data_folder() + "/models/stories260K.bin"); }
inline std::string why_skipped() { return "no models in " + data_folder() + " (set KVLAB_DATA)"; }

inline std::string data_path(const std::string& name) { return data_folder() + "/" + name; }

// The folder that `kvlab models convert` makes of a llama2.c model of the data folder, with the tokenizer that it was trained with.
inline std::string converted(const std::string& model) {
  static const TempFolder folder;
  const std::filesystem::path to = folder / model;
  const std::string pieces = model == "babyllama105" ? "tok105" : "tok512";
  std::string said = "there is no .venv, which ./kvlab makes";
  if (!std::filesystem::exists(to) &&
      (io::project_python().empty() || io::run_python("harness/model/model_packages.py",
                                                      {"convert", data_path("models/" + model + ".bin"),
                                                       data_path("models/" + pieces + ".bin"), to.string()},
                                                      &said) != 0))
    throw std::runtime_error("cannot convert " + model + ": " + said);
  return to.string();
}

inline std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

template <typename T>
void append_raw(std::string& bytes, const T* values, size_t n) {
  bytes.append(reinterpret_cast<const char*>(values), n * sizeof(T));
}

// All logits [tokens, vocabulary], `chunk` tokens a call.
inline std::vector<float> run_in_chunks(const model::Model& model, std::span<const int> ids, size_t chunk) {
  const model::Model::Attention attention = model::full_attention(model.config());
  const model::Model::Recurrence recurrence = model::full_recurrence(model);
  std::vector<float> logits;
  for (size_t first = 0; first < ids.size(); first += chunk) {
    const auto step = ids.subspan(first, std::min(chunk, ids.size() - first));
    const std::vector<float> part =
        model.forward(step, static_cast<int64_t>(first), attention, model::Rotary::kTrained, recurrence);
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

// Infinite for unequal sizes.
template <class Want>
double largest_difference(const std::vector<float>& got, const std::vector<Want>& want) {
  double worst = got.size() == want.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    worst = std::max(worst, std::abs(double{got[i]} - double{want[i]}));
  return worst;
}

}  // namespace kv::test
