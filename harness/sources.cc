#include "harness/sources.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "harness/ledger.h"
#include "harness/model_workload.h"
#include "harness/paths.h"
#include "variants/build.h"

namespace kv {
namespace {

class SharedSource : public Source {
 public:
  explicit SharedSource(std::unique_ptr<Workload> workload) : workload_(std::move(workload)) {}
  const WorkloadShape& shape() const override { return workload_->shape(); }
  int64_t max_tokens() const override { return workload_->max_tokens(); }
  std::shared_ptr<const Workload> workload(const Spec&, int64_t) override { return workload_; }

 private:
  std::shared_ptr<const Workload> workload_;
};

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Documents stand between lines `<|endoftext|>`; each begins with BOS, as models are trained on such texts.
std::vector<int> encode_documents(const Tokenizer& tokenizer, const std::string& text) {
  const std::string mark = "<|endoftext|>", space = " \n\r\t";
  if (text.find(mark) == std::string::npos) return tokenizer.encode(text);
  std::vector<int> ids;
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find(mark, from), text.size());
    const std::string document = text.substr(from, to - from);
    if (const size_t first = document.find_first_not_of(space); first != std::string::npos) {
      const std::vector<int> more =
          tokenizer.encode(document.substr(first, document.find_last_not_of(space) - first + 1));
      ids.insert(ids.end(), more.begin(), more.end());
    }
    from = to + mark.size();
  }
  return ids;
}

// A tokenizer without byte pieces makes one id of all that it does not know; a little of that is a text's
// rare characters, much of it the wrong tokenizer.
void check_known(const std::vector<int>& ids, const std::string& path) {
  const auto unknown = static_cast<size_t>(std::count(ids.begin(), ids.end(), Tokenizer::kUnknown));
  if (10 * unknown <= ids.size()) return;
  throw std::invalid_argument(
      "text " + path + ": " + std::to_string(100 * unknown / ids.size()) +
      " % of it is outside the tokenizer's vocabulary; give a text that the tokenizer knows");
}

class ModelSource : public Source {
 public:
  explicit ModelSource(const WorkloadConfig& config)
      : model_(find_input(config.model, "model").string()),
        tokenizer_(find_input(config.tokenizer, "tokenizer").string(), model_.config().vocab_size) {
    const std::string text = find_input(config.text, "text").string();
    tokens_ = encode_documents(tokenizer_, read_text(text));
    check_known(tokens_, text);
    const ModelConfig& m = model_.config();
    shape_ = {.layers = m.layers, .q_heads = m.q_heads, .kv_heads = m.kv_heads, .head_dim = m.head_dim()};
  }

  const WorkloadShape& shape() const override { return shape_; }
  const Model* model() const override { return &model_; }
  const Tokenizer* tokenizer() const override { return &tokenizer_; }
  std::span<const int> text() const override { return tokens_; }
  int64_t max_tokens() const override {
    return std::min<int64_t>(static_cast<int64_t>(tokens_.size()), model_.config().max_tokens);
  }

  std::shared_ptr<const Workload> workload(const Spec& spec, int64_t tokens) override {
    constexpr int64_t kChunk = 64;
    Ledger ledger;
    const auto cache = build_cache(spec,
                                   {.layers = shape_.layers,
                                    .q_heads = shape_.q_heads,
                                    .kv_heads = shape_.kv_heads,
                                    .head_dim = shape_.head_dim,
                                    .max_tokens = tokens,
                                    .max_sequences = 1},
                                   ledger);
    const SequenceId id = cache->add_sequence();
    const auto attention = [&](int layer, int64_t n, const float* q, const float* k, const float* v,
                               float* out) {
      const StepInput in{.sequence = id, .n = n, .q = q, .k = k, .v = v, .out = out};
      cache->step(layer, {&in, 1});
    };
    const std::span<const int> first(tokens_.data(), static_cast<size_t>(tokens));
    return capture(model_, first, attention, "model", kChunk);
  }

 private:
  Model model_;
  Tokenizer tokenizer_;
  std::vector<int> tokens_;
  WorkloadShape shape_;
};

}  // namespace

std::unique_ptr<Source> open_source(const std::string& family, const Config& config) {
  if (family == "model") {
    if (config.workload.model.empty()) {
      throw std::invalid_argument(
          "workload \"model\" needs workload.model, workload.tokenizer and workload.text");
    }
    return std::make_unique<ModelSource>(config.workload);
  }
  if (family == "dump") {
    if (config.workload.dump.empty()) throw std::invalid_argument("workload \"dump\" needs workload.dump");
    return std::make_unique<SharedSource>(open_dump(find_input(config.workload.dump, "dump").string()));
  }
  const Geometry& g = config.geometry;
  return std::make_unique<SharedSource>(make_synthetic(
      family, {.layers = g.layers, .q_heads = g.q_heads, .kv_heads = g.kv_heads, .head_dim = g.head_dim},
      config.seed));
}

}  // namespace kv
