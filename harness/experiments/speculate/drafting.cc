#include "harness/experiments/speculate/drafting.h"

#include <algorithm>
#include <cmath>

#include "harness/measure/timing.h"
#include "harness/model/sampling.h"

namespace kv::experiments {
namespace {

// Largest difference of a logit that the order of sums explains, of logits whose size is some tens.
constexpr double kMostRounding = 1e-2;

std::span<const float> row_of(const std::vector<float>& logits, int64_t row, int64_t rows) {
  const size_t size = logits.size() / static_cast<size_t>(rows);
  return std::span(logits).subspan(static_cast<size_t>(row) * size, size);
}

int greedy(std::span<const float> logits) { return model::next_token(logits, {}, 0, 0); }

// Judges the first token that is not the plain text's.
void judge(DraftedText& text, const PlainText& plain, std::span<const float> logits) {
  const size_t at = text.ids.size() - 1;
  if (text.rounded || !text.failure.empty() || text.ids[at] == plain.ids[at]) return;
  const std::vector<float>& wanted = plain.logits[at];
  double rounding = 0.0;
  for (size_t i = 0; i < wanted.size(); ++i)
    rounding = std::max(rounding, std::abs(double{wanted[i]} - double{logits[i]}));
  const double margin =
      double{wanted[static_cast<size_t>(plain.ids[at])]} - double{wanted[static_cast<size_t>(text.ids[at])]};
  text.rounded = std::abs(margin) <= 2.0 * rounding && rounding <= kMostRounding;
  if (!text.rounded)
    text.failure = "leaves the text without drafts at token " + std::to_string(at) + ", whose margin is " +
                   std::to_string(margin) + "; a logit differs by " + std::to_string(rounding);
}

}  // namespace

PlainText continue_plainly(TextReader& target, std::span<const int> prompt, int64_t tokens) {
  PlainText plain;
  std::vector<int> text(prompt.begin(), prompt.end());
  measure::Stopwatch watch;
  std::vector<float> logits = target.read(text);
  watch.lap();
  while (true) {
    text.push_back(greedy(logits));
    plain.logits.push_back(std::move(logits));
    if (std::ssize(text) == std::ssize(prompt) + tokens) break;
    logits = target.read(text);
  }
  plain.seconds = watch.lap();
  plain.ids.assign(text.begin() + std::ssize(prompt), text.end());
  return plain;
}

DraftedText continue_with_drafts(TextReader& draft, TextReader& target, std::span<const int> prompt,
                                 int64_t draft_tokens, const PlainText& plain) {
  DraftedText drafted;
  std::vector<int> text(prompt.begin(), prompt.end());
  const int64_t end = std::ssize(prompt) + std::ssize(plain.ids);
  const auto add = [&](int id, std::span<const float> logits) {
    text.push_back(id);
    drafted.ids.push_back(id);
    judge(drafted, plain, logits);
  };
  measure::Stopwatch watch;
  draft.read(text);
  const std::vector<float> first = target.read(text);
  watch.lap();
  add(greedy(first), first);
  while (std::ssize(text) < end) {
    const int64_t known = std::ssize(text), proposed = std::min(draft_tokens, end - known - 1);
    for (int64_t i = 0; i < proposed; ++i) text.push_back(greedy(draft.read(text)));
    const std::vector<float> logits = target.read(text, proposed + 1);
    ++drafted.steps;
    const std::vector<int> proposal(text.begin() + known, text.end());
    text.resize(static_cast<size_t>(known));
    int64_t accepted = 0;
    for (bool goes_on = true; goes_on; ++accepted) {
      const std::span<const float> row = row_of(logits, accepted, proposed + 1);
      add(greedy(row), row);
      goes_on = accepted < proposed && text.back() == proposal[static_cast<size_t>(accepted)];
    }
    --accepted;  // the last token is the target's own
    if (proposed > 0) drafted.shares.push_back(static_cast<double>(accepted) / static_cast<double>(proposed));
    target.keep(std::ssize(text) - 1);
    draft.keep(std::ssize(text) - 1);
  }
  drafted.seconds = watch.lap();
  return drafted;
}

}  // namespace kv::experiments
