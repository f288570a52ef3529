#include "harness/config/key.h"

#include <algorithm>
#include <stdexcept>

#include "harness/config/axes.h"

namespace kv::config {
namespace {

void check_text(const Section& section, const std::string& key, const std::string& text,
                void (*check)(const std::string&)) {
  if (!check) return;
  try {
    check(text);
  } catch (const std::invalid_argument& e) {
    section.fail(key, std::string("has a mistake: ") + e.what());
  }
}

}  // namespace

Reader<int64_t> tokens(int64_t least, int64_t most) {
  return [=](Section& section, const std::string& key, const int64_t& fallback) {
    return section.tokens(key, fallback, least, most);
  };
}

Reader<int64_t> count(int64_t least, int64_t most) {
  return [=](Section& section, const std::string& key, const int64_t& fallback) {
    return section.integer(key, fallback, least, most);
  };
}

Reader<double> number(double least, double most) {
  return [=](Section& section, const std::string& key, const double& fallback) {
    return section.number(key, fallback, least, most);
  };
}

Reader<bool> flag() {
  return [](Section& section, const std::string& key, const bool& fallback) {
    return section.boolean(key, fallback);
  };
}

Reader<std::string> choice(std::vector<std::string> known) {
  return [known = std::move(known)](Section& section, const std::string& key, const std::string& fallback) {
    return section.choice(key, fallback, known);
  };
}

Reader<std::string> text(void (*check)(const std::string&)) {
  return [=](Section& section, const std::string& key, const std::string& fallback) {
    const std::string value = section.text(key, fallback);
    check_text(section, key, value, check);
    return value;
  };
}

Reader<std::vector<int64_t>> token_list() {
  return [](Section& section, const std::string& key, const std::vector<int64_t>& fallback) {
    const std::vector<int64_t> values = section.token_list(key, fallback, 1, kMaxTokens);
    refuse_repeats(section, key, values);
    return values;
  };
}

Reader<std::vector<double>> number_list(double least, double most) {
  return [=](Section& section, const std::string& key, const std::vector<double>& fallback) {
    const std::vector<double> values = section.numbers(key, fallback, least, most);
    refuse_repeats(section, key, values);
    return values;
  };
}

Reader<std::vector<std::string>> text_list(void (*check)(const std::string&)) {
  return [=](Section& section, const std::string& key, const std::vector<std::string>& fallback) {
    const std::vector<std::string> values = section.texts(key, fallback);
    refuse_repeats(section, key, values);
    for (const std::string& value : values) check_text(section, key, value, check);
    return values;
  };
}

const Axis<int64_t> kBatch{
    results::kBatch,
    "batch",
    SharedTable::kSweep,
    {1},
    [](Section& section, const std::string& key, const std::vector<int64_t>& fallback) {
      const std::vector<int64_t> values = section.integers(key, fallback, 1, 4096);
      refuse_repeats(section, key, values);
      return values;
    },
    "sequences of a step"};

const Axis<int64_t> kSeqLen{
    results::kSeqLen,
    "seq_len",
    SharedTable::kSweep,
    {},
    [](Section& section, const std::string& key, const std::vector<int64_t>& fallback) {
      std::vector<int64_t> values = token_list()(section, key, fallback);
      std::sort(values.begin(), values.end());
      return values;
    },
    "tokens of a sequence",
    "seq_len = [256, 512, 1024]"};

}  // namespace kv::config
