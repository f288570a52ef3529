// pyramid: snapkv with budgets that fall from layer to layer (PyramidKV, Cai et al. 2024, arXiv:2406.02069).
//
// Lower layers attend to many tokens and higher ones to few, the authors found. Beside its window the last of L layers
// keeps 1/beta of the mean, the first twice the mean less that, and those between lie on a line, so that all together
// keep what L equal budgets would. Rows are rounded from the first layer on, so that no sum is off by more than half a row.
//
// No layer has more rows than the prompt: of a short prompt the first keeps all, and those between lie on the flatter line
// that gives the rest to the later ones, as in kvpress. So the sum holds for every prompt that is longer than the mean.
//
// A layer is told its place by `layer` and `layers`, which a model sets. A cache that is told of one layer alone has the
// mean.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "variants/list.h"
#include "variants/retention/positions.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

class PyramidLine {
 public:
  PyramidLine(const Stage& stage, int64_t max_tokens)
      : voting_(stage, max_tokens),
        layer_(stage.integer("layer")),
        layers_(stage.integer("layers")),
        mean_(static_cast<double>(voting_.budget - voting_.window)) {
    const double last = mean_ * 100.0 / static_cast<double>(stage.hundredths("beta"));
    first_ = 2.0 * mean_ - last;
    if (layer_ >= layers_)
      throw std::invalid_argument("pyramid: layer (" + std::to_string(layer_) + ") must be below layers (" +
                                  std::to_string(layers_) + ")");
    if (layers_ > 1 && last < 1.0)
      throw std::invalid_argument(
          "pyramid: budget (" + stage.text("budget") +
          " rows) leaves the last layer no row beside its window (" + std::to_string(voting_.window) +
          "): window + beta = " + std::to_string(voting_.window + (stage.hundredths("beta") + 99) / 100) +
          " rows would");
  }

  // This layer's rows of a prompt, the window included.
  int64_t budget(int64_t prompt) const {
    if (layers_ == 1) return voting_.budget;
    const double first = std::clamp(static_cast<double>(prompt - voting_.window), mean_, first_);
    const double step = 2.0 * (first - mean_) / static_cast<double>(layers_ - 1);
    // The exact rows of the layers before `end`, beside their windows: a sum of a line.
    const auto before = [&](int64_t layers) {
      const auto end = static_cast<double>(layers);
      return static_cast<int64_t>(end * first - step * end * (end - 1) / 2.0 + 0.5);
    };
    return voting_.window + before(layer_ + 1) - before(layer_);
  }
  // The most of any prompt: early layers have it of a long one, late ones of one that is just longer than the mean.
  int64_t most() const { return std::max(budget(Parameter::kMostRows), voting_.budget); }

 private:
  Voting voting_;
  int64_t layer_, layers_;
  double mean_, first_;  // rows beside the window: the layers' mean, and the first layer's of a long prompt
};

class Pyramid : public VotedCut {
 public:
  Pyramid(const Stage& stage, const RetentionContext& context)
      : VotedCut(stage, context, PyramidLine(stage, context.max_tokens).most()),
        line_(stage, context.max_tokens) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Pyramid>(*this); }

 private:
  int64_t budget_for(int64_t prompt) const override { return line_.budget(prompt); }
  void decide(std::vector<float> votes) override { keep_most_voted(votes, voted_rows()); }

  PyramidLine line_;
};

// Layers that a spec numbers itself stay as they are.
Stage pyramid_of_layer(const Stage& stage, int layer, int layers, int64_t max_tokens) {
  Stage own = stage;
  if (stage.integer("layers") == 1) {
    own.values["layer"] = std::to_string(layer);
    own.values["layers"] = std::to_string(layers);
  }
  PyramidLine(own, max_tokens);  // throws where its numbers cannot be
  return own;
}

std::vector<Parameter> pyramid_parameters() {
  std::vector<Parameter> parameters = voting_parameters("rows of a layer on average, the window included");
  parameters.push_back(Parameter::decimal("beta", "20", 100, 100000, {},
                                          "the mean over what the last layer keeps beside its window"));
  parameters.push_back(
      Parameter::integer("layer", "0", 0, 1023, {}, "place among `layers`; a model sets both"));
  parameters.push_back(
      Parameter::integer("layers", "1", 1, 1024, {}, "layers whose budgets fall; 1: the mean"));
  parameters.push_back(positions_parameter());
  return parameters;
}

}  // namespace

const RetentionEntry pyramid{
    {.name = "pyramid",
     .help = "cuts a long prompt as snapkv does, with budgets that fall from layer to layer",
     .source = "PyramidKV, Cai et al. 2024 (arXiv:2406.02069); kvpress draws the line through whole budgets, "
               "with the window inside",
     .parameters = pyramid_parameters()},
    {.make = make_retention<Pyramid>,
     .slots =
         [](const Stage& stage, const SequenceLengths& lengths) {
           return PromptCut::slots(PyramidLine(stage, lengths.max_tokens).budget(lengths.prompt), lengths);
         },
     .metadata_bytes =
         [](const Stage& stage, int64_t max_tokens) {
           return PromptCut::metadata_bytes(PyramidLine(stage, max_tokens).most(), max_tokens);
         },
     .scores = true,
     .cuts_prompt = true,
     .irreversible = "a prompt that was cut stays cut",
     .of_layer = pyramid_of_layer,
     .rotates_at_read = rotates_by_cache_position}};

}  // namespace kv::retention
