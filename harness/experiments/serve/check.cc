#include "harness/experiments/serve/check.h"

#include <algorithm>
#include <cmath>

#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/ragged_model.h"
#include "harness/model/sampling.h"

namespace kv::experiments {
namespace {

// A request's text in a cache of its own.
struct Alone {
  explicit Alone(const ServingSetup& setup)
      : ledger(setup.ledger_bytes),
        cache(build_cache(setup.spec, cache_shape(setup.model->config(), 1, setup.room.max_tokens), ledger)),
        reader(*setup.model, *cache) {}

  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  model::TextReader reader;
};

// Logits after the last of these tokens.
std::vector<float> read_in_chunks(const ServingSetup& setup, std::span<const int> ids, size_t first,
                                  size_t chunk) {
  Alone alone(setup);
  size_t end = std::min(first, ids.size());
  std::vector<float> logits = alone.reader.read(ids.first(end));
  while (end < ids.size()) {
    end = std::min(end + chunk, ids.size());
    logits = alone.reader.read(ids.first(end));
  }
  return logits;
}

// How far the likeliest of these tokens is above `other`, and what rounding may do to that.
struct Margin {
  double margin, rounding;
};
Margin margin_of(const ServingSetup& setup, std::span<const int> text, size_t prompt, int token, int other) {
  const std::vector<float> logits = read_in_chunks(setup, text, prompt, 1);
  double difference = 0.0;
  for (const size_t chunk : {text.size(), size_t{64}, size_t{17}}) {
    const std::vector<float> otherwise = read_in_chunks(setup, text, chunk, chunk);
    for (size_t i = 0; i < logits.size(); ++i)
      difference = std::max(difference, std::abs(double{logits[i]} - double{otherwise[i]}));
  }
  return {double{logits[static_cast<size_t>(token)]} - double{logits[static_cast<size_t>(other)]},
          2.0 * difference};
}

}  // namespace

std::vector<std::vector<int>> answers_alone(const ServingSetup& setup,
                                            std::span<const ServedRequest> requests,
                                            const std::function<bool()>& stop) {
  std::vector<std::vector<int>> answers;
  for (const ServedRequest& one : requests) {
    if (stop()) break;
    std::vector<int>& answer = answers.emplace_back();
    const int64_t tokens = std::ssize(one.prompt) + one.request.output_tokens - 1;
    if (tokens > setup.room.max_tokens) continue;  // refused
    Alone alone(setup);
    std::vector<int> text = one.prompt;
    while (std::ssize(answer) < std::max<int64_t>(1, one.request.output_tokens)) {
      answer.push_back(model::next_token(alone.reader.read(text), {}, 0, 0));
      text.push_back(answer.back());
    }
  }
  return answers;
}

AnswerCheck check_answers(const ServingSetup& setup, std::span<const ServedRequest> requests,
                          std::span<const std::vector<int>> alone, std::span<const std::vector<int>> served) {
  AnswerCheck check;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int>&want = alone[i], &got = served[i];
    if (got.empty()) continue;
    const auto fail = [&](const std::string& what) {
      if (check.failure.empty()) check.failure = "request " + std::to_string(i) + what;
    };
    if (got.size() != want.size()) {
      fail(" has " + std::to_string(got.size()) + " tokens of an answer of " + std::to_string(want.size()));
      continue;
    }
    const auto leaves =
        static_cast<size_t>(std::mismatch(want.begin(), want.end(), got.begin()).first - want.begin());
    if (leaves == want.size()) continue;
    std::vector<int> text = requests[i].prompt;
    text.insert(text.end(), want.begin(), want.begin() + static_cast<std::ptrdiff_t>(leaves));
    const Margin margin = margin_of(setup, text, requests[i].prompt.size(), want[leaves], got[leaves]);
    if (margin.margin <= margin.rounding) {
      ++check.rounded;
    } else {
      fail(" leaves its answer alone at token " + std::to_string(leaves) + ", whose margin is " +
           std::to_string(margin.margin) + ", and rounding explains " + std::to_string(margin.rounding));
    }
  }
  return check;
}

}  // namespace kv::experiments
