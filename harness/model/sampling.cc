#include "harness/model/sampling.h"

#include <algorithm>
#include <cmath>

#include "harness/math/random.h"

namespace kv::model {
namespace {

constexpr uint64_t kStream = 0x73616d706c65;  // "sample"

}  // namespace

int next_token(std::span<const float> logits, const Sampling& sampling, int sequence, int64_t position) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature == 0) return static_cast<int>(largest - logits.begin());
  std::vector<double> up_to;  // weights, summed from the first token on
  double sum = 0;
  for (const float x : logits)
    up_to.push_back(sum += std::exp((double{x} - *largest) / sampling.temperature));
  const uint64_t key = math::random::key({sampling.seed, kStream, static_cast<uint64_t>(sequence)});
  const double drawn = math::random::uniform(key, static_cast<uint64_t>(position)) * sum;
  const auto token = std::upper_bound(up_to.begin(), up_to.end(), drawn) - up_to.begin();
  return static_cast<int>(std::min<std::ptrdiff_t>(token, std::ssize(logits) - 1));
}

std::vector<int> continue_prompts(Decoder& model, std::span<const int> prompts, int64_t length,
                                  const Sampling& sampling, const std::function<bool()>& stop) {
  const auto sequences = int64_t{model.sequence_count()};
  const auto samples = static_cast<size_t>(sampling.samples);
  std::vector<std::vector<int>> texts;
  const int64_t prompt = static_cast<int64_t>(prompts.size()) / sequences;
  for (int64_t s = 0; s < sequences; ++s) {
    const auto from = prompts.begin() + s * prompt;
    texts.insert(texts.end(), samples, std::vector<int>(from, from + prompt));
  }
  std::vector<int> newest(prompts.begin(), prompts.end());
  for (int64_t at = prompt; at < length && !stop(); ++at) {
    const auto read = static_cast<size_t>(model.sequence_count());
    const std::vector<float> logits = model.prompt(newest, static_cast<int64_t>(newest.size() / read));
    const size_t vocab = logits.size() / read;
    if (read < texts.size()) model.fork(sampling.samples);
    newest.clear();
    for (size_t t = 0; t < texts.size(); ++t) {
      const size_t from = t * read / texts.size();  // the sequence that was read: the prompt's, or its own
      const auto last = std::span(logits).subspan(from * vocab, vocab);
      const Sampling own{sampling.temperature, sampling.seed + t % samples};
      newest.push_back(next_token(last, own, static_cast<int>(t / samples), at));
      texts[t].push_back(newest.back());
    }
  }
  std::vector<int> all;
  for (const std::vector<int>& text : texts) all.insert(all.end(), text.begin(), text.end());
  return all;
}

}  // namespace kv::model
