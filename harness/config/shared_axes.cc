#include "harness/config/shared_axes.h"

#include <algorithm>

#include "harness/config/axes.h"

namespace kv::config {

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
