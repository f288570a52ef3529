// chunkkv: a prompt is cut down once to whole chunks of tokens (Liu et al. 2025, arXiv:2502.00299). A chunk's score is the mean of its
// tokens' votes (snapkv's, variants/retention/prompt_cut.h), summed over the layer's heads, which keep the same tokens. As many
// chunks stay as the budget is of the prompt, rounded down: those of the voters, then the largest, of equal ones the first.
//
// In kvpress any press can score; the paper's code has the votes of a prompt's last queries, as here.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "variants/list.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

struct Chunks {
  Voting voting;
  int64_t budget, size;
  Chunks(const Stage& stage, int64_t max_tokens)
      : voting(stage, max_tokens), budget(voting.budget), size(stage.integer("chunk")) {
    if (budget < voting.window + 2 * size)
      throw std::invalid_argument(
          "chunkkv: budget (" + std::to_string(budget) +
          " rows) must hold the window and two chunks: " + std::to_string(voting.window + 2 * size));
  }
  int64_t count(int64_t prompt) const { return (prompt + size - 1) / size; }
  int64_t kept(int64_t prompt) const { return count(prompt) * budget / prompt; }
  // The last chunk, which may be shorter, is the voters'.
  int64_t rows(int64_t prompt) const {
    return prompt <= budget ? budget : kept(prompt) * size - (count(prompt) * size - prompt);
  }
};

class ChunkKv : public VotedCut {
 public:
  ChunkKv(const Stage& stage, const RetentionContext& context)
      : VotedCut(stage, context), chunks_(stage, context.max_tokens) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<ChunkKv>(*this); }

  static void settle(std::span<const std::unique_ptr<Retention>> heads) {
    const auto& first = static_cast<const ChunkKv&>(*heads.front());
    const int64_t prompt = first.prompt(), size = first.chunks_.size;
    if (first.votes_.empty()) return;
    std::vector<double> means(static_cast<size_t>(first.chunks_.count(prompt)));
    for (const auto& head : heads) {
      const std::vector<float>& votes = static_cast<ChunkKv&>(*head).votes_;
      for (int64_t i = 0; i < prompt; ++i) means[i / size] += i < std::ssize(votes) ? votes[i] : INFINITY;
    }
    std::vector<int64_t> tokens;
    for (const int64_t chunk : largest(means, first.chunks_.kept(prompt))) {
      for (int64_t i = chunk * size; i < std::min(prompt, (chunk + 1) * size); ++i) tokens.push_back(i);
    }
    for (const auto& head : heads) {
      static_cast<ChunkKv&>(*head).votes_ = {};
      static_cast<ChunkKv&>(*head).keep(tokens);
    }
  }

 private:
  int64_t budget_for(int64_t prompt) const override { return chunks_.rows(prompt); }
  void decide(std::vector<float> votes) override { votes_ = std::move(votes); }

  Chunks chunks_;
  std::vector<float> votes_;
};

std::vector<Parameter> chunk_parameters() {
  std::vector<Parameter> parameters =
      voting_parameters("most rows that the prompt is cut down to, the window included");
  parameters.push_back(Parameter::integer("chunk", "20", 1, 1024, {8}, "tokens that stay or go together"));
  return parameters;
}

}  // namespace

const RetentionEntry chunkkv = [] {
  RetentionEntry entry = prompt_cut_entry<ChunkKv, Chunks>(
      {.name = "chunkkv",
       .help = "cuts a long prompt down to whole chunks, by what its last queries look at",
       .source =
           "ChunkKV, Liu et al. 2025 (arXiv:2502.00299), without the reuse of chunks from layer to layer",
       .parameters = chunk_parameters()},
      {.settle = ChunkKv::settle});
  entry.slots = [](const Stage& stage, const SequenceLengths& lengths) {
    return PromptCut::slots(Chunks(stage, lengths.max_tokens).rows(lengths.prompt), lengths);
  };
  return entry;
}();

}  // namespace kv::retention
