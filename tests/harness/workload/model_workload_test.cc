// capture() records the inputs of the model's attention, in any chunks, and reads back in any
// ranges.
#include "harness/workload/model_workload.h"

#include <algorithm>

#include "tests/harness/model/tiny_hugging_face.h"

namespace kv::model_workload_test {
namespace {

using test::largest_difference;
using test::TinyModel;

struct Qkv {
  std::vector<float> q, k, v;
};

Qkv read(const workload::Workload& workload, int layer, int64_t first, int64_t n, int sequence = 0) {
  const workload::WorkloadShape& shape = workload.shape();
  const auto size = [&](int heads) { return static_cast<size_t>(heads * n * shape.head_dim); };
  Qkv out = {std::vector<float>(size(shape.q_heads)), std::vector<float>(size(shape.kv_heads)),
             std::vector<float>(size(shape.kv_heads))};
  workload.read(sequence, layer, first, n, out.q.data(), out.k.data(), out.v.data());
  return out;
}

// One head's row of a [heads, n, head_dim] tensor.
std::vector<float> row(const std::vector<float>& x, int64_t n, int head_dim, int64_t head, int64_t token) {
  const auto from = x.begin() + (head * n + token) * head_dim;
  return {from, from + head_dim};
}

class Capture : public testing::Test {
 protected:
  std::unique_ptr<workload::Workload> capture_in(int64_t chunk, const std::vector<int>& ids) const {
    return workload::capture(model_, ids, model::full_attention(model_.config()), "tiny", chunk);
  }

  const TinyModel file_;
  const model::Model model_{file_.path()};
  const std::vector<int> ids_ = {1, 9, 4, 4, 0, 7, 10};
};

TEST_F(Capture, HasTheModelsShape) {
  const auto workload = capture_in(3, ids_);
  EXPECT_EQ(workload->shape().layers, 2);
  EXPECT_EQ(workload->shape().q_heads, 4);
  EXPECT_EQ(workload->shape().kv_heads, 2);
  EXPECT_EQ(workload->shape().head_dim, 4);
  EXPECT_EQ(workload->max_tokens(), 7);
  EXPECT_EQ(workload->name(), "tiny");
}

TEST_F(Capture, IsWhatAttentionWasGiven) {
  const auto workload = capture_in(7, ids_);
  const model::Model::Attention attention = model::full_attention(model_.config());
  int layers = 0;
  const auto compare = [&](int layer, int64_t n, const float* q, const float* k, const float* v, float* out) {
    const Qkv got = read(*workload, layer, 0, n);
    EXPECT_TRUE(std::equal(got.q.begin(), got.q.end(), q));
    EXPECT_TRUE(std::equal(got.k.begin(), got.k.end(), k));
    EXPECT_TRUE(std::equal(got.v.begin(), got.v.end(), v));
    attention(layer, n, q, k, v, out);
    ++layers;
  };
  model_.forward(ids_, 0, compare);
  EXPECT_EQ(layers, 2);
}

TEST_F(Capture, ChunksMakeNoDifferenceButRounding) {
  const auto whole = capture_in(7, ids_);
  for (const int64_t chunk : {1, 3, 100}) {
    const auto workload = capture_in(chunk, ids_);
    for (int layer = 0; layer < 2; ++layer) {
      const Qkv got = read(*workload, layer, 0, 7), want = read(*whole, layer, 0, 7);
      EXPECT_LT(largest_difference(got.q, want.q), 1e-5);
      EXPECT_LT(largest_difference(got.k, want.k), 1e-5);
      EXPECT_LT(largest_difference(got.v, want.v), 1e-5);
    }
  }
}

TEST_F(Capture, ReadsAnyRangeOfAnySequence) {
  const auto workload = capture_in(2, ids_);
  const Qkv all = read(*workload, 1, 0, 7);
  for (int64_t first = 0; first < 7; ++first) {
    for (int64_t n = 0; n <= 7 - first; ++n) {
      const Qkv part = read(*workload, 1, first, n, /*sequence=*/static_cast<int>(first));
      for (int64_t t = 0; t < n; ++t) {
        for (int h = 0; h < 4; ++h) EXPECT_EQ(row(part.q, n, 4, h, t), row(all.q, 7, 4, h, first + t));
        for (int h = 0; h < 2; ++h) EXPECT_EQ(row(part.k, n, 4, h, t), row(all.k, 7, 4, h, first + t));
        for (int h = 0; h < 2; ++h) EXPECT_EQ(row(part.v, n, 4, h, t), row(all.v, 7, 4, h, first + t));
      }
    }
  }
}

TEST_F(Capture, LeavesOutTensorsThatAreNotAskedFor) {
  const auto workload = capture_in(7, ids_);
  std::vector<float> k(2 * 7 * 4);
  workload->read(0, 1, 0, 7, nullptr, k.data(), nullptr);
  EXPECT_EQ(k, read(*workload, 1, 0, 7).k);
}

TEST_F(Capture, KeysAreRotatedAndValuesAreNot) {
  const auto workload = capture_in(5, {6, 6, 6, 6, 6});
  const Qkv rows = read(*workload, 0, 0, 5);
  const std::vector<float> first_k = row(rows.k, 5, 4, 1, 0), first_v = row(rows.v, 5, 4, 1, 0);
  for (int64_t t = 1; t < 5; ++t) {
    const std::vector<float> k = row(rows.k, 5, 4, 1, t), v = row(rows.v, 5, 4, 1, t);
    EXPECT_LT(largest_difference(v, first_v), 1e-6);
    EXPECT_GT(largest_difference(k, first_k), 1e-2);
    EXPECT_NEAR(std::hypot(k[0], k[2]), std::hypot(first_k[0], first_k[2]), 1e-6);
    EXPECT_NEAR(std::hypot(k[1], k[3]), std::hypot(first_k[1], first_k[3]), 1e-6);
  }
}

TEST_F(Capture, ErrorsOfTheAttentionReachTheNextLayer) {
  const model::Model::Attention blind = [](int, int64_t n, const float*, const float*, const float*,
                                           float* out) { std::fill_n(out, 4 * n * 4, 0.0f); };
  const auto full = capture_in(7, ids_), broken = workload::capture(model_, ids_, blind, "blind", 7);
  EXPECT_EQ(read(*broken, 0, 0, 7).k, read(*full, 0, 0, 7).k);
  EXPECT_GT(largest_difference(read(*broken, 1, 0, 7).k, read(*full, 1, 0, 7).k), 1e-2);
}

TEST_F(Capture, RefusesWhatItCannotRun) {
  using test::contains;
  using test::refusal;
  EXPECT_TRUE(contains(refusal([&] { capture_in(1, {}); }), "no tokens"));
  EXPECT_TRUE(contains(refusal([&] { capture_in(0, ids_); }), "chunk is 0, expected at least 1"));
  EXPECT_TRUE(contains(refusal([&] { capture_in(4, {1, 11}); }), "token id 11"));
  EXPECT_TRUE(contains(refusal([&] { capture_in(4, std::vector<int>(10, 1)); }), "rotary table has 0 to 8"));
}

TEST_F(Capture, ReadingOutsideIsABug) {
  const auto workload = capture_in(7, ids_);
  EXPECT_THROW(read(*workload, 0, 3, 5), std::logic_error);
  EXPECT_THROW(workload->read(0, 0, -1, 1, nullptr, nullptr, nullptr), std::logic_error);
  EXPECT_THROW(workload->read(0, 2, 0, 1, nullptr, nullptr, nullptr), std::logic_error);
}

}  // namespace
}  // namespace kv::model_workload_test
