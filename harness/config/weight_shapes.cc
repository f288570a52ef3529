#include "harness/config/weight_shapes.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "harness/io/json.h"
#include "harness/io/mapped_file.h"

namespace kv::config {
namespace {

using nlohmann::json;

// Families whose MLP has no gate, and families whose classifier is the embedding by default.
constexpr std::array<std::string_view, 3> kUngated{"gpt2", "falcon", "phi"};
constexpr std::array<std::string_view, 6> kTied{"gemma",   "gemma2", "gemma3_text",
                                                "smollm3", "gpt2",   "falcon"};
constexpr std::array kExperts{"num_local_experts", "num_experts", "n_routed_experts"};

class File {
 public:
  explicit File(const std::string& path) : path_(path), config_(io::parse_json(io::read_text(path), path)) {
    if (config_.is_object() && config_.contains("text_config")) config_ = json(config_["text_config"]);
    if (!config_.is_object()) throw std::invalid_argument(path + ": not a JSON object; a config.json is one");
  }

  WeightShapes shapes() const {
    for (const char* key : kExperts) {
      if (config_.contains(key))
        fail("'" + std::string(key) + "': random weights are for dense models, and this one has experts");
    }
    const json type = config_.value("model_type", json());
    const auto among = [&](const auto& families) {
      return std::any_of(families.begin(), families.end(),
                         [&](std::string_view family) { return type == std::string(family); });
    };
    WeightShapes s{.hidden = count("hidden_size", "n_embd"),
                   .intermediate = count("intermediate_size", "n_inner"),
                   .vocab = count("vocab_size"),
                   .gated = !among(kUngated),
                   .tied = among(kTied)};
    if (config_.contains("tie_word_embeddings")) s.tied = config_["tie_word_embeddings"] == true;
    if (!config_.contains("linear_num_value_heads")) return s;
    const int64_t keys = count("linear_num_key_heads") * count("linear_key_head_dim"),
                  value_heads = count("linear_num_value_heads"),
                  values = value_heads * count("linear_value_head_dim");
    s.recurrent_in = 2 * keys + 2 * values + 2 * value_heads;  // q and k; v and its gate; decay and step size
    s.recurrent_out = values;
    s.convolved = 2 * keys + values;
    s.convolution_kernel =
        config_.contains("linear_conv_kernel_dim") ? count("linear_conv_kernel_dim") : 4;  // Qwen3-Next's
    return s;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw std::invalid_argument(path_ + ": " + what); }

  int64_t count(const char* key, const char* older = "") const {
    constexpr int64_t kMost = 1 << 24;
    const char* name = config_.contains(key) || !config_.contains(older) ? key : older;
    const json value = config_.value(name, json());
    if (value.is_null())
      fail("'" + std::string(name) + "' is missing; random weights need a whole config.json");
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMost)
      fail("'" + std::string(name) + "' must be a positive integer, not " + io::shown(value));
    return value.get<int64_t>();
  }

  std::string path_;
  json config_;
};

}  // namespace

WeightShapes read_weight_shapes(const std::string& path) { return File(path).shapes(); }

}  // namespace kv::config
