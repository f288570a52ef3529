// Ratios that should be near 1: a decode step done in two or more ways over the same cold rows, the ways
// interleaved. `ctest` does not run this; build and run `ratio_benchmark`.
//
//   layout      rows in one span a head; in chunks of 256, each with all heads; in shuffled blocks of 16
//   scores      without and with the weights that each row got, which heavy-hitter policies ask for
//   ragged      16 sequences of one length; and one of 32768 beside fifteen of 512, as many rows in all
//   arithmetic  queries and weights of 16 bits, and of 8
//
//   us       microseconds of the first way (median of the turns)
//   others   time of each other way over that of the first
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/benchmarks/benchmark.h"

namespace {

using namespace kv;
using namespace kv::bench;

// One replica's memory, and the spans of a head's rows in it.
struct Rows {
  Plane k, v;
  const std::byte* base;
  int heads;

  Span part(int head, int64_t first, int64_t rows) const {
    Span span{k.side(base, heads, head), v.side(base + k.bytes(heads), heads, head), rows};
    for (Side* side : {&span.k, &span.v}) {
      const int64_t unit = first / side->encoding.group;
      side->data += unit * side->stride;
      if (side->meta) side->meta += unit * side->meta_stride;
    }
    return span;
  }
  // The rows of one head, in chunks of `rows` rows and [heads, rows] each, which lie in this order.
  std::vector<Span> chunks(int head, int64_t rows, std::span<const int64_t> order) const {
    std::vector<Span> spans;
    for (const int64_t chunk : order) spans.push_back(part(0, (chunk * heads + head) * rows, rows));
    return spans;
  }
};

// The same step over one replica, one way.
struct Step {
  std::vector<std::vector<Span>> spans;
  std::vector<HeadQueries> problems;
};

struct Queries {
  int group, head_dim;
  std::vector<float> q, out, weights;
  Queries(const Shape& s, int64_t problems)
      : group(s.q_heads / s.kv_heads),
        head_dim(s.head_dim),
        q(static_cast<size_t>(problems * group * head_dim)),
        out(q.size()),
        weights(static_cast<size_t>(s.kv_heads * s.rows)) {
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    for (float& x : q) x = normal(rng);
  }
  // Makes a problem of each entry of step.spans, which are all set; with_weights gives each head its rows of
  // `weights`.
  void add_problems(Step& step, bool with_weights) {
    float* next = weights.data();
    for (const auto& spans : step.spans) {
      const int64_t at = std::ssize(step.problems) * group * head_dim;
      const int64_t rows = std::accumulate(spans.begin(), spans.end(), int64_t{0},
                                           [](int64_t sum, const Span& span) { return sum + span.rows; });
      step.problems.push_back({.q = q.data() + at,
                               .out = out.data() + at,
                               .spans = spans,
                               .group = group,
                               .visible = rows,
                               .attention_weights = with_weights ? next : nullptr});
      next += rows;
    }
  }
};

using MakeSteps = std::vector<Step> (*)(const Rows&, const Shape&, Queries&);

std::vector<Step> layouts(const Rows& rows, const Shape& s, Queries& queries) {
  constexpr int64_t kChunk = 256, kBlock = 16;
  std::vector<int64_t> in_order(static_cast<size_t>(s.rows / kChunk)),
      shuffled(static_cast<size_t>(s.rows / kBlock));
  std::iota(in_order.begin(), in_order.end(), 0);
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(5));
  std::vector<Step> steps(3);
  for (int head = 0; head < s.kv_heads; ++head) {
    steps[0].spans.push_back({rows.part(head, 0, s.rows)});
    steps[1].spans.push_back(rows.chunks(head, kChunk, in_order));
    steps[2].spans.push_back(rows.chunks(head, kBlock, shuffled));
  }
  for (Step& step : steps) queries.add_problems(step, false);
  return steps;
}

std::vector<Step> scores(const Rows& rows, const Shape& s, Queries& queries) {
  std::vector<Step> steps(2);
  for (Step& step : steps) {
    for (int head = 0; head < s.kv_heads; ++head) step.spans.push_back({rows.part(head, 0, s.rows)});
    queries.add_problems(step, &step == &steps[1]);
  }
  return steps;
}

std::vector<Step> arithmetics(const Rows& rows, const Shape& s, Queries& queries) {
  std::vector<Step> steps = scores(rows, s, queries);
  for (HeadQueries& p : steps[1].problems) {
    p.attention_weights = nullptr;
    p.arithmetic = Arithmetic::kInt8;
  }
  return steps;
}

constexpr int kBatch = 16;
constexpr int64_t kLong = 32768, kShort = 512, kTotal = kLong + (kBatch - 1) * kShort;

std::vector<Step> batches(const Rows& rows, const Shape& s, Queries& queries) {
  std::vector<Step> steps(2);
  int64_t first[2] = {0, 0};
  for (int i = 0; i < kBatch; ++i) {
    const int64_t length[2] = {kTotal / kBatch, i == 0 ? kLong : kShort};
    for (int way = 0; way < 2; first[way] += length[way], ++way) {
      for (int head = 0; head < s.kv_heads; ++head)
        steps[static_cast<size_t>(way)].spans.push_back({rows.part(head, first[way], length[way])});
    }
  }
  for (Step& step : steps) queries.add_problems(step, false);
  return steps;
}

struct Kind {
  const char* name;
  MakeSteps make;
  std::vector<const char*> others;
  int batch;
};

void compare(benchmark::State& state, const Kind& kind, const Codec& codec, const Shape& shape, int threads) {
  constexpr int64_t kColdBytes = int64_t{256} << 20;  // several times a last-level cache
  const Plane k(codec.k, shape), v(codec.v, shape);
  const int64_t replica_bytes = k.bytes(shape.kv_heads) + v.bytes(shape.kv_heads);
  const int64_t replicas = std::max<int64_t>(2, (kColdBytes + replica_bytes - 1) / replica_bytes);
  const Buffer memory = allocate(replica_bytes * replicas);
  std::mt19937 rng(7);
  Queries queries(shape, int64_t{kind.batch} * shape.kv_heads);
  std::vector<std::vector<Step>> steps;
  for (int64_t i = 0; i < replicas; ++i) {
    std::byte* base = memory.get() + i * replica_bytes;
    k.fill(base, shape, rng);
    v.fill(base + k.bytes(shape.kv_heads), shape, rng);
    steps.push_back(kind.make({k, v, base, shape.kv_heads}, shape, queries));
  }
  size_t workspace_bytes = 0;
  for (const Step& step : steps[0])
    workspace_bytes = std::max(workspace_bytes, attention_workspace_bytes(step.problems, shape.head_dim));
  const Buffer workspace = allocate(static_cast<int64_t>(workspace_bytes));
  omp_set_num_threads(threads);
  std::vector<std::vector<double>> times(steps[0].size());
  size_t turn = 0;
  for (auto _ : state) {
    for (size_t way = 0; way < times.size(); ++way, ++turn) {
      const Step& step = steps[turn % steps.size()][way];
      times[way].push_back(seconds([&] { attend(step.problems, shape.head_dim, workspace.get()); }));
    }
    if (steps.size() % times.size() == 0) ++turn;  // every way meets every replica
    state.SetIterationTime(times[0].back());
  }
  const double first = median(times[0]);
  state.counters["us"] = first * 1e6;
  for (size_t way = 1; way < times.size(); ++way)
    state.counters[kind.others[way - 1]] = median(times[way]) / first;
}

const Kind kKinds[] = {{"layout", layouts, {"chunks", "blocks"}, 1},
                       {"scores", scores, {"with_weights"}, 1},
                       {"arithmetic", arithmetics, {"int8"}, 1},
                       {"ragged", batches, {"one_long"}, kBatch}};

void add(const Kind& kind, const Codec& codec, const Shape& shape, int threads) {
  const std::string label = std::string(kind.name) + "/" + codec.name + "/q32kv" +
                            std::to_string(shape.kv_heads) + "/D" + std::to_string(shape.head_dim) + "/S" +
                            std::to_string(shape.rows) + "/t" + std::to_string(threads);
  benchmark::RegisterBenchmark(label.c_str(), [&kind, &codec, shape, threads](benchmark::State& state) {
    compare(state, kind, codec, shape, threads);
  })->UseManualTime();
}

}  // namespace

int main(int argc, char** argv) {
  for (const Kind& kind : kKinds) {
    const bool blocks = kind.make == arithmetics;
    for (const char* name :
         blocks ? std::vector{"q8_0", "q4_0"} : std::vector{"f32", "f16", "token8", "token4", "kivi4"}) {
      const Codec& codec = *std::find_if(std::begin(kCodecs), std::end(kCodecs),
                                         [&](const Codec& c) { return std::string(name) == c.name; });
      if (kind.make == layouts && codec.k.group > 16) continue;  // a block holds whole units
      for (const int kv_heads : {8, 32}) {
        for (const int head_dim : {64, 128}) {
          for (const int64_t rows : {int64_t{2048}, int64_t{8192}, kTotal}) {
            if ((kind.make == batches) != (rows == kTotal) || (kind.make == batches && kv_heads == 32))
              continue;
            for (const int threads : {1, 2}) add(kind, codec, {32, kv_heads, head_dim, rows}, threads);
          }
        }
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
