// streaming: a prompt is cut down once to its first `sinks` tokens and its newest, and all later tokens stay (StreamingLLM, Xiao et
// al. 2023, arXiv:2309.17453, as kvpress has it). `ring` holds its window from the first token on, as the paper does.
#include <cmath>
#include <numeric>

#include "variants/list.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

class Streaming : public ScoredCut<Streaming> {
  using ScoredCut::ScoredCut;

  std::vector<double> score(const SliceRows& rows) const override {
    std::vector<double> scores(static_cast<size_t>(rows.n));
    std::iota(scores.begin(), scores.end(), 0.0);
    std::fill_n(scores.begin(), std::min(parameter("sinks"), rows.n), INFINITY);
    return scores;
  }
};

}  // namespace

const RetentionEntry streaming = prompt_cut_entry<Streaming, CutSettings>(
    {.name = "streaming",
     .help = "cuts a long prompt down to its first and its newest tokens, and keeps all that follows",
     .source = "StreamingLLM (arXiv:2309.17453) as kvpress has it; the paper's window is `ring`",
     .parameters = {cut_budget_parameter(), cut_sinks_parameter()}});

}  // namespace kv::retention
