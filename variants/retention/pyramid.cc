// pyramid: snapkv with budgets that fall from layer to layer (PyramidKV, Cai et al. 2024, arXiv:2406.02069).
//
// Lower layers attend to many tokens and higher ones to few, the authors found. Beside its window the last of L layers
// keeps 1/beta of the mean, the first twice the mean less that, and those between lie on a line, so that all together
// keep what L equal budgets would. Rows are rounded from the first layer on, so that no sum is off by more than half a row.
//
// A layer's policy is then snapkv with its budget, which is how bytes, errors and tables name it. A cache that is told of
// one layer alone has the mean.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "variants/list.h"
#include "variants/retention/positions.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

Stage snapkv_of(const Stage& stage, const std::string& budget) {
  Stage own{.name = "snapkv", .values = stage.values};
  own.values.erase("beta");
  own.values["budget"] = budget;
  return own;
}

Stage pyramid_of_layer(const Stage& stage, int layer, int layers, int64_t max_tokens) {
  const int64_t window = stage.integer("window");
  const double mean = static_cast<double>(std::max<int64_t>(0, stage.rows("budget", max_tokens) - window));
  const double last = mean * 100.0 / static_cast<double>(stage.hundredths("beta"));
  if (last < 1.0)
    throw std::invalid_argument(
        "pyramid: budget (" + stage.text("budget") +
        " rows) leaves the last layer no row beside its window (" + std::to_string(window) +
        "): window + beta = " + std::to_string(window + (stage.hundredths("beta") + 99) / 100) +
        " rows would");
  // The exact rows of the layers before `end`, beside their windows: a sum of a line.
  const auto before = [&](int end) {
    const double step = layers > 1 ? 2.0 * (mean - last) / (layers - 1) : 0.0;
    const double first = layers > 1 ? 2.0 * mean - last : mean;
    return static_cast<int64_t>(end * first - step * end * (end - 1) / 2.0 + 0.5);
  };
  return snapkv_of(stage, std::to_string(window + before(layer + 1) - before(layer)));
}

std::vector<Parameter> pyramid_parameters() {
  std::vector<Parameter> parameters = voting_parameters("rows of a layer on average, the window included");
  parameters.push_back(Parameter::decimal("beta", "20", 100, 100000, {},
                                          "the mean over what the last layer keeps beside its window"));
  parameters.push_back(positions_parameter());
  return parameters;
}

}  // namespace

const RetentionEntry pyramid{
    {.name = "pyramid",
     .help = "cuts a long prompt as snapkv does, with budgets that fall from layer to layer",
     .source = "PyramidKV, Cai et al. 2024 (arXiv:2406.02069)",
     .parameters = pyramid_parameters()},
    {.make =
         [](const Stage& stage, const RetentionContext& context) {
           return snapkv.make(snapkv_of(stage, stage.text("budget")), context);
         },
     .slots =
         [](const Stage& stage, const SequenceLengths& lengths) {
           return snapkv.slots(snapkv_of(stage, stage.text("budget")), lengths);
         },
     .metadata_bytes =
         [](const Stage& stage, int64_t max_tokens) {
           return snapkv.metadata_bytes(snapkv_of(stage, stage.text("budget")), max_tokens);
         },
     .scores = true,
     .cuts_prompt = true,
     .irreversible = "a prompt that was cut stays cut",
     .of_layer = pyramid_of_layer,
     .rotates_at_read = rotates_by_cache_position}};

}  // namespace kv::retention
