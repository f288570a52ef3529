// Attention problems over PagedHeads; the GPU's kernels run on them through the shim.
#pragma once

#include <gtest/gtest.h>

#include "harness/verify/reference/attention.h"
#include "kernels/cuda/attention/attend_simple.h"
#include "kernels/cuda/attention/evict.h"
#include "kernels/cuda/attention/instance.h"
#include "tests/kernels/paged_head.h"

namespace kv::test {

// One sequence's head: `rows` rows, the newest `tail_rows` raw, and the queries of n tokens.
struct GpuCase {
  CodecPair codec;
  int head_dim = 64;
  int group = 1;
  int32_t rows = 1, tail_rows = 0, n = 1;
  Placing placing = kContiguous;
};

struct GpuProblem {
  GpuProblem(const GpuCase& c, uint64_t seed)
      : shape(c),
        encoded(c.codec, c.head_dim, c.placing, c.rows - c.tail_rows),
        tail(same(kF16), c.head_dim, {c.codec.unit_rows()}, c.tail_rows),
        q(gaussian(static_cast<size_t>(c.group * c.n * c.head_dim), seed)),
        out(q.size(), NAN) {
    for (PagedHead* head : {&encoded, &tail}) {
      const auto size = static_cast<size_t>(head->rows()) * static_cast<size_t>(c.head_dim);
      head->fill(gaussian(size, seed + 1), gaussian(size, seed + 2));
      seed += 2;
    }
  }
  std::vector<float> decoded(bool v) const {
    std::vector<float> all = encoded.decoded(v);
    const std::vector<float> raw = tail.decoded(v);
    all.insert(all.end(), raw.begin(), raw.end());
    return all;
  }
  int32_t seen(int query) const { return shape.rows - shape.n + 1 + query % shape.n; }

  // ||out - FP64|| / ||FP64|| over all queries.
  double relative_error() const {
    const std::vector<float> k = decoded(false), v = decoded(true);
    double error = 0.0, norm = 0.0;
    for (int query = 0; query < shape.group * shape.n; ++query) {
      const auto want =
          reference::attend(row(q, query), head_rows(k, query), head_rows(v, query), seen(query));
      for (int d = 0; d < shape.head_dim; ++d) {
        const double difference = static_cast<double>(row(out, query)[static_cast<size_t>(d)]) - want.out[d];
        error += difference * difference;
        norm += want.out[d] * want.out[d];
      }
    }
    return std::sqrt(error / norm);
  }
  std::span<const float> row(const std::vector<float>& all, int query) const {
    return std::span(all).subspan(static_cast<size_t>(query * shape.head_dim),
                                  static_cast<size_t>(shape.head_dim));
  }
  std::span<const float> head_rows(const std::vector<float>& all, int query) const {
    return std::span(all).first(static_cast<size_t>(seen(query) * shape.head_dim));
  }

  GpuCase shape;
  PagedHead encoded, tail;
  std::vector<float> q, out, logits, weights;
};

// The problems of one launch: one codec, head_dim and group, any lengths.
class GpuBatch {
 public:
  enum class Path { kSimple, kFast };
  // One of instance.h's lists of codecs.
  using Find = cuda::FindInstance;

  // `item_rows`: rows a work item of the fast kernel.
  explicit GpuBatch(std::vector<GpuProblem>& problems, Path path = Path::kSimple, bool scored = false,
                    int32_t item_rows = kFastRows)
      : problems_(problems), item_rows_(item_rows) {
    int64_t partials = 0;
    for (GpuProblem& p : problems) {
      const int32_t queries = p.shape.group * p.shape.n;
      if (scored) p.logits.assign(static_cast<size_t>(queries * (p.encoded.rows() + p.tail.rows())), NAN);
      args_.push_back({.q = p.q.data(),
                       .out = p.out.data(),
                       .pages = p.encoded.pages.data(),
                       .tail = p.tail.pages.data(),
                       .rows = p.encoded.rows(),
                       .tail_rows = p.tail.rows(),
                       .n = p.shape.n,
                       .visible = p.shape.rows - p.shape.n + 1,
                       .splits = path == Path::kSimple ? parts(p.shape.rows, kSimpleRows) : plan(p),
                       .first_partial = partials,
                       .logits = scored ? p.logits.data() : nullptr});
      partials += int64_t{queries} * args_.back().splits;
      most_splits_ = std::max(most_splits_, args_.back().splits);
      most_queries_ = std::max(most_queries_, queries);
      most_rows_ = std::max(most_rows_, p.shape.rows);
    }
    const auto count = static_cast<size_t>(partials);
    for (auto* plane : {&max_, &sum_}) plane->assign(count, NAN);
    values_.assign(count * static_cast<size_t>(problems.front().shape.head_dim), NAN);
    log_sum_.assign(problems.size() * static_cast<size_t>(most_queries_), NAN);
  }

  void attend_simple(const simt::Launch& how) {
    launch({parts(most_queries_, cuda::kAttendWarps), problems(), most_splits_}, how, [&] {
      const GpuProblem& p = problems_.front();
      cuda::attend_simple(
          {p.encoded.layout, p.tail.layout, args_.data(), partials(), p.shape.group, kSimpleRows});
    });
  }
  // Runs the fast kernel, whose last blocks merge if `merges`; raw tails have a launch of their own if the codec's kernel does
  // not take them. Returns false if there is no instance.
  bool decode(Find find, const simt::Launch& how, bool merges = true, int most_shared_bytes = 227 << 10) {
    const GpuProblem& p = problems_.front();
    const bool together = find(p.encoded.layout, most_queries_, most_shared_bytes).takes_tail;
    for (const bool tail : {false, true}) {
      const cuda::Layout& layout = tail ? p.tail.layout : p.encoded.layout;
      const cuda::Instance fit = (tail ? cuda::find_plain : find)(layout, most_queries_, most_shared_bytes);
      std::vector<cuda::WorkItem> items = items_[tail];
      if (!fit.kernel) return false;
      if (together && tail) break;
      if (together) items.insert(items.end(), items_[1].begin(), items_[1].end());
      if (items.empty()) continue;
      simt::Launch launch = how;
      launch.grid = {static_cast<int>(items.size()), parts(most_queries_, fit.queries)};
      launch.threads = cuda::kDecodeWarps * simt::kWarp;
      launch.shared_bytes = static_cast<size_t>(fit.shared_bytes);
      counters_.resize(static_cast<size_t>(problems() * launch.grid.y), 0);
      const cuda::DecodeParams params{layout, p.tail.layout, items.data(), merging(),
                                      merges ? counters_.data() : nullptr};
      simt::Machine::run(launch, [&] { fit.kernel(params); });
    }
    return true;
  }
  void merge(unsigned seed) {
    launch({parts(most_queries_, cuda::kMergeQueries), problems()}, {.seed = seed},
           [&] { cuda::merge_splits(merging()); });
  }
  // True if the counters are zero, as every launch must leave them.
  bool counters_are_zero() const {
    return std::all_of(counters_.begin(), counters_.end(), [](unsigned count) { return count == 0; });
  }
  void add_attention_weights(unsigned seed) {
    std::vector<float*> weights;
    for (GpuProblem& p : problems_) {
      p.weights.resize(static_cast<size_t>(p.encoded.rows() + p.tail.rows()), 0.0f);
      weights.push_back(p.weights.data());
    }
    launch({(most_rows_ + kThreads - 1) / kThreads, problems()}, {.seed = seed}, [&] {
      cuda::add_attention_weights(
          {args_.data(), log_sum_.data(), weights.data(), problems_.front().shape.group, most_queries_});
    });
  }

  // Few rows a split, so that small cases have several splits.
  static constexpr int32_t kSimpleRows = 64;
  // So many rows that a warp's ring wraps around, and no multiple of the rows that the warps take at once.
  static constexpr int32_t kFastRows = 352;

 private:
  static int32_t parts(int32_t rows, int32_t of) { return (rows + of - 1) / of; }
  // Cuts a problem into work items; returns their number.
  int32_t plan(const GpuProblem& p) {
    const auto problem = static_cast<int32_t>(args_.size());
    int32_t split = 0;
    for (const bool tail : {false, true}) {
      const int32_t rows = tail ? p.tail.rows() : p.encoded.rows();
      for (int32_t begin = 0; begin < rows; begin += item_rows_) {
        items_[tail].push_back({problem, split++, begin, std::min(begin + item_rows_, rows), tail});
      }
    }
    return split;
  }

  static constexpr int kThreads = cuda::kAttendWarps * simt::kWarp;
  int problems() const { return static_cast<int>(problems_.size()); }
  cuda::Partials partials() { return {max_.data(), sum_.data(), values_.data()}; }
  cuda::MergeParams merging() {
    const GpuCase& c = problems_.front().shape;
    return {args_.data(), partials(), c.group, c.head_dim, log_sum_.data(), most_queries_};
  }
  static void launch(simt::Dim grid, simt::Launch how, const std::function<void()>& kernel) {
    how.grid = grid;
    how.threads = kThreads;
    simt::Machine::run(how, kernel);
  }

  std::vector<GpuProblem>& problems_;
  const int32_t item_rows_;
  std::vector<cuda::Problem> args_;
  std::vector<cuda::WorkItem> items_[2];  // pages', tails'
  std::vector<float> max_, sum_, values_, log_sum_;
  std::vector<unsigned> counters_;
  int32_t most_splits_ = 0, most_queries_ = 0, most_rows_ = 0;
};

inline std::vector<GpuProblem> make_problems(const std::vector<GpuCase>& cases) {
  std::vector<GpuProblem> problems;
  uint64_t seed = 1;
  for (const GpuCase& c : cases) problems.emplace_back(c, seed += 1000);
  return problems;
}

inline std::string describe(const GpuCase& c) {
  return c.codec.name() + " head_dim " + std::to_string(c.head_dim) + " group " + std::to_string(c.group) +
         " rows " + std::to_string(c.rows) + " (tail " + std::to_string(c.tail_rows) + ") n " +
         std::to_string(c.n) + " pages of " + std::to_string(c.placing.page_units);
}

inline constexpr int kHopperBytes = 227 << 10;

// f32 arithmetic; both read the same encoded rows.
inline constexpr double kBound = 3e-6;

}  // namespace kv::test
