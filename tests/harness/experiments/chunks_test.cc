// Readings in chunks: what is compared with token by token, and which differences are a cache's fault.
#include <cmath>

#include "harness/experiments/reading_run.h"
#include "harness/measure/chunk_replay.h"
#include "harness/measure/prediction_columns.h"
#include "harness/results/cell_columns.h"
#include "tests/harness/model/tiny_hugging_face.h"
#include "variants/cache/compatibility.h"

namespace kv {
namespace {

// Keys of equal norms and codes next to a border: where rounding of K decides, losses part, and the cache is
// right.
TEST(Chunks, AnswerAsTheirTokensDoWhateverTheModelRounds) {
  const test::TinyModel file({.dim = 32, .vocab = 40, .seq_len = 120});
  const model::Model model(file.path());
  std::vector<int> ids(201);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(i * i % 37);
  const measure::Passages passages = experiments::text_windows(ids, 2, 100);
  const auto difference = [&](const char* spec) {
    return measure::replay_difference(model, passages, passages.length, {.prompt = 37, .step = 16},
                                      parse_spec(spec), model::Rotary::kTrained);
  };
  for (const char* spec :
       {"contiguous", "paged/fp8", "contiguous/token(bits=2)/ring(window=20,sinks=2)",
        "contiguous/f16/knorm(budget=20)", "contiguous/h2o(heavy=10,recent=10)", "contiguous/tova(budget=20)",
        "contiguous/ring(window=20,positions=cache)", "contiguous/random(budget=20)"})
    EXPECT_LE(difference(spec), 2 * kernel_error_bound(parse_spec(spec))) << spec;
  EXPECT_GT(difference("contiguous/kivi(bits=2,residual=0,group=8)"), 1e-3)
      << "a chunk's rows are encoded before its first query attends";
}

results::Row recorded(const char* spec, double loss, double answers) {
  measure::Cell cell;
  cell.spec = parse_spec(spec);
  experiments::record_chunks(cell, 16, loss, [&] { return answers; });
  return cell.result;
}

TEST(Chunks, FailWhereTheCacheAnswersThemOtherwise) {
  EXPECT_EQ(recorded("contiguous/knorm", 1e-4, 1)[measure::kChunkCheck], "losses");
  EXPECT_EQ(recorded("contiguous/kivi", 1, 1)[measure::kChunkCheck], "by_design");
  const results::Row rounded = recorded("contiguous/knorm", 2, 1e-6),
                     wrong = recorded("contiguous/knorm", 2, 1e-3);
  EXPECT_EQ(rounded[measure::kChunkCheck], "answers");
  EXPECT_EQ(rounded[measure::kChunkMaxDiff].value(), 2);
  EXPECT_NE(rounded[results::kStatus], results::Status::kFailed);
  EXPECT_EQ(wrong[results::kStatus], results::Status::kFailed);
  EXPECT_TRUE(test::contains(wrong[results::kReason],
                             "a loss by 2 nats, and outputs of the same q, k and v by 0.001"))
      << wrong[results::kReason];
  EXPECT_EQ(recorded("contiguous/knorm", NAN, NAN)[results::kStatus], results::Status::kFailed);
}

}  // namespace
}  // namespace kv
