// A prompt that is read once, with the full f32 cache, for all caches.
#include <cmath>

#include "harness/experiments/reading_run.h"
#include "harness/model/step_parts.h"
#include "tests/harness/model/tiny_hugging_face.h"

namespace kv {
namespace {

double largest_loss_change(const std::vector<measure::Prediction>& a,
                           const std::vector<measure::Prediction>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i].loss - b[i].loss));
  return worst;
}

class FullPrompt : public testing::Test {
 protected:
  static measure::Passages windows(int sequences, int64_t length) {
    std::mt19937 bits(23);
    std::vector<int> ids(static_cast<size_t>(sequences * length + 1));
    for (int& id : ids) id = static_cast<int>(bits() % 40);
    return experiments::text_windows(ids, sequences, length);
  }
  std::vector<std::vector<measure::Prediction>> read(const measure::Passages& p,
                                                     const measure::StepSchedule& schedule,
                                                     std::initializer_list<const char*> texts) const {
    std::vector<LayerSpecs> specs;
    for (const char* text : texts) specs.push_back(parse_spec(text));
    return measure::read_specs(model_, p, schedule, specs);
  }

  const test::TinyModel file_{{.dim = 32, .vocab = 40, .seq_len = 120}};
  const model::Model model_{file_.path()};
};

// SnapKV attends to its whole prompt, and H2O drops nothing of this one: the full cache's answers are theirs.
TEST_F(FullPrompt, AFullPromptChangesNoAnswerOfCachesThatReadItWhole) {
  measure::Passages p = windows(16, 60);
  p.first = 40;
  const measure::StepSchedule full{.prompt = 40, .step = 1, .full_prompt = true}, stored{.prompt = 40};
  const std::initializer_list<const char*> texts = {
      "contiguous", "segmented(rows=16)/snapkv(budget=24,window=8)", "contiguous/h2o(heavy=24,recent=16)",
      "segmented(rows=16)/snapkv(budget=24,window=8,positions=cache)"};
  const auto once = read(p, full, texts), apart = read(p, stored, texts);
  EXPECT_EQ(largest_loss_change(once[0], apart[0]), 0);
  // Sums that also give a policy its weights round otherwise.
  for (size_t i = 1; i < texts.size(); ++i) {
    EXPECT_LT(largest_loss_change(once[i], apart[i]), 1e-4) << i;
    for (size_t at = 0; at < once[i].size(); ++at) ASSERT_EQ(once[i][at].same_top, apart[i][at].same_top);
  }
  EXPECT_GT(largest_loss_change(once[1], once[0]), 1e-3);
  const char* codes = "contiguous/token(bits=2)";
  EXPECT_GT(largest_loss_change(read(p, full, {codes})[0], read(p, stored, {codes})[0]), 1e-3);
  EXPECT_EQ(largest_loss_change(read(p, full, {"contiguous/token(bits=2,prefill=full)"})[0],
                                read(p, stored, {"contiguous/token(bits=2,prefill=full)"})[0]),
            0);
}

TEST_F(FullPrompt, AFullPromptIsMultipliedOnce) {
  measure::Passages p = windows(2, 50);
  p.first = p.length - 1;
  const auto work = [&](bool full, std::initializer_list<const char*> texts) {
    const model::StepParts parts;
    read(p, {.prompt = 49, .step = 1, .full_prompt = full}, texts);
    return parts.multiply_adds();
  };
  const std::initializer_list<const char*> texts = {
      "paged/token(bits=8)", "contiguous/h2o(heavy=10,recent=10)", "contiguous/ring(window=20)",
      "contiguous/f16/quest(page=4,top=0.5)"};
  const int64_t one = work(true, {});
  EXPECT_EQ(one, work(false, {}));
  EXPECT_LT(work(true, texts), one + one / 8);
  EXPECT_GT(work(false, texts), 3 * one);
}

// Caches keep rows of the full cache, whatever a policy drops on the way.
TEST_F(FullPrompt, CachesAreGivenTheFullPromptsRows) {
  const measure::Passages p = windows(2, 50);
  const ModelShape shape = cache_shape(model_.config(), 2, 50);
  memory::Ledger ledger;
  const auto full = build_cache(parse_spec("contiguous"), shape, ledger),
             h2o = build_cache(parse_spec("contiguous/h2o(heavy=10,recent=10)"), shape, ledger);
  measure::Reading reference(model_, *full, p), reading(model_, *h2o, p);
  measure::Reading* const readings[] = {&reading};
  ASSERT_TRUE(measure::read_together(p, {.prompt = 50, .step = 1, .full_prompt = true}, reference, readings,
                                     [](double) { return true; }));
  const auto row_of = [&](Cache& cache, SequenceId id, int layer, int64_t row) {
    const Span span = cache.spans(id, layer, 0).at(0);
    const auto* k = reinterpret_cast<const float*>(span.k.data + row * span.k.stride);
    return std::vector<float>(k, k + shape.head_dim);
  };
  for (int layer = 0; layer < model_.config().layers; ++layer) {
    const SequenceId id = reading.decoder.sequences()[1], same = reference.decoder.sequences()[1];
    const std::vector<int64_t> kept = h2o->kept(id, layer, 0);
    ASSERT_EQ(kept.size(), 20u);
    for (size_t row = 0; row < kept.size(); ++row)
      EXPECT_EQ(row_of(*h2o, id, layer, static_cast<int64_t>(row)), row_of(*full, same, layer, kept[row]));
  }
}

}  // namespace
}  // namespace kv
