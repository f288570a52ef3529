// Helpers of the tests of models: the real data if it is there, small files of their own, and refusals.
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

// A llama2.c v0 model with random weights. `vocab` < 0 writes a classifier of its own.
struct TinyModel {
  int32_t dim = 16, hidden = 20, layers = 2, q_heads = 4, kv_heads = 2, vocab = 11, seq_len = 9;

  int head_dim() const { return dim / q_heads; }
  int kv_dim() const { return kv_heads * head_dim(); }
  int vocab_size() const { return std::abs(vocab); }

  // All f32 values, in the order of the file.
  std::vector<float> values() const {
    std::mt19937 bits(7);
    std::vector<float> out;
    const auto add = [&](int n, float centre, float spread) {
      for (int i = 0; i < n; ++i)
        out.push_back(centre + spread * (static_cast<float>(bits()) / 2147483648.0f - 1.0f));
    };
    add(vocab_size() * dim, 0, 1);
    add(layers * dim, 1, 0.5f);                          // rms_att
    add(layers * 2 * (dim + kv_dim()) * dim, 0, 0.25f);  // wq, wk, wv, wo
    add(layers * dim, 1, 0.5f);                          // rms_ffn
    add(layers * 3 * hidden * dim, 0, 0.25f);            // w1, w2, w3
    add(dim, 1, 0.5f);                                   // rms_final
    for (const bool sine : {false, true}) {
      for (int t = 0; t < seq_len; ++t) {
        for (int i = 0; i < head_dim() / 2; ++i) {
          const double angle = t * std::pow(10000.0, -2.0 * i / head_dim());
          out.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
        }
      }
    }
    if (vocab < 0) add(vocab_size() * dim, 0, 1);
    return out;
  }

  std::string bytes() const {
    const std::array<int32_t, 7> header = {dim, hidden, layers, q_heads, kv_heads, vocab, seq_len};
    const std::vector<float> all = values();
    std::string out;
    append_raw(out, header.data(), header.size());
    append_raw(out, all.data(), all.size());
    return out;
  }
};

}  // namespace kv::test
