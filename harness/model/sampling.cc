#include "harness/model/sampling.h"

#include <algorithm>
#include <cmath>

#include "harness/math/random.h"

namespace kv::model {
namespace {

constexpr uint64_t kStream = 0x73616d706c65;  // "sample"

// The bytes of the UTF-8 character at `at`, 0 if there is none: its lead byte, its continuations, and no
// overlong forms, surrogates or numbers past U+10FFFF.
size_t character_bytes(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xC2 && lead < 0xE0   ? 2
                      : lead >= 0xE0 && lead < 0xF0 ? 3
                      : lead >= 0xF0 && lead < 0xF5 ? 4
                                                    : 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool odd = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) >= 0xA0) ||
                   (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) >= 0x90);
  return odd ? 0 : size;
}

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

std::string printable(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_bytes(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (size == 0 || (byte < 0x20 && byte != '\n') || byte == 0x7F) {
      out += "\uFFFD";
    } else {
      out += text.substr(at, size);
    }
    at += std::max<size_t>(size, 1);
  }
  return out;
}

}  // namespace kv::model
