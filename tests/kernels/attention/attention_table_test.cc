// The CPU's attention of floats, codes, 8-bit products and prefill: one table of cases each, and every property on every
// instruction set of this machine.
#include <omp.h>

#include "kernels/cpu/isa.h"
#include "kernels/piece_order.h"
#include "tests/kernels/attention/properties.h"

namespace kv::attention_table_test {
namespace {

using namespace test;

// The spans of one problem, and what they point to.
struct Spans {
  std::vector<PagedHead> heads;
  std::vector<Span> all;
};

Spans spans_of(const Problem& p, const Way& way, std::map<size_t, Pool>* pools, int heads) {
  Spans spans;
  int first = 0;
  for (const auto& [codec, rows] : p.segments()) {
    Placing placing = way.placing;
    if (pools) placing.page_units = std::max(1, placing.page_units / codec.unit_rows());
    Pool* pool = pools ? &(*pools)[spans.heads.size()] : nullptr;
    PagedHead& head = spans.heads.emplace_back(codec, p.shape.head_dim, placing, rows, pool,
                                               pool ? p.index : 0, pool ? heads : 1);
    const auto part = [&, at = first, count = rows](const std::vector<float>& x) {
      const auto from = x.begin() + int64_t{at} * p.shape.head_dim;
      return std::vector<float>(from, from + int64_t{count} * p.shape.head_dim);
    };
    head.fill(part(p.k), part(p.v));
    std::ranges::copy(head.spans(), std::back_inserter(spans.all));
    first += rows;
  }
  if (way.shuffled) {
    spans.all.resize(
        static_cast<size_t>(p.rows));  // of a row each; those that are not seen would be seen in turn
    std::ranges::shuffle(spans.all, std::mt19937(5));
  }
  return spans;
}

// A workspace of just the bytes that were asked for. Its bytes are set, so that a read before a write shows.
class Workspace {
 public:
  explicit Workspace(size_t bytes) : bytes_(bytes), all_(static_cast<int64_t>(bytes + 64)) {
    std::memset(all_.get(), 0xa5, bytes + 64);
  }
  ~Workspace() {
    for (size_t i = bytes_; i < bytes_ + 64; ++i)
      EXPECT_EQ(all_.get()[i], std::byte{0xa5}) << "behind the workspace";
  }
  std::byte* get() const { return all_.get(); }

 private:
  size_t bytes_;
  Bytes all_;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(std::string isa) : isa_(std::move(isa)) {}
  ~CpuBackend() override { cpu::force_isa("auto"); }
  using Backend::attend;
  std::string name() const override { return isa_; }

  std::vector<Output> attend(std::span<const Problem> problems, const Way& way) override {
    cpu::force_isa(isa_);
    std::map<size_t, Pool> pools;
    std::vector<Spans> spans;
    std::vector<Output> outputs(problems.size());
    std::vector<HeadQueries> all;
    const auto pools_of = [&](const Problem& p) {
      const bool pooled = way.placing.page_units == kPool.page_units && problems.size() > 1;
      return pooled && p.stored == problems.front().stored ? &pools
                                                           : nullptr;  // not a head of another length
    };
    for (const Problem& p : problems)
      spans.push_back(spans_of(p, way, pools_of(p), static_cast<int>(problems.size())));
    for (size_t i = 0; i < problems.size(); ++i) {
      const Problem& p = problems[i];
      outputs[i].out.assign(p.q.size(), NAN);
      outputs[i].weights.assign(p.shape.scored ? static_cast<size_t>(p.rows) : 0, 0.0f);
      all.push_back({.q = p.q.data(),
                     .out = outputs[i].out.data(),
                     .spans = spans[i].all,
                     .group = p.shape.group,
                     .n = p.n,
                     .visible = p.visible(),
                     .sink_logits = p.sinks.empty() ? nullptr : p.sinks.data(),
                     .score_cap = static_cast<float>(p.shape.cap),
                     .arithmetic = p.shape.int8 ? Arithmetic::kInt8 : Arithmetic::kExact,
                     .attention_weights = p.shape.scored ? outputs[i].weights.data() : nullptr});
    }
    const int threads = omp_get_max_threads();
    omp_set_num_threads(way.turn ? 3 : 1);
    const int head_dim = problems.front().shape.head_dim;
    if (way.parts) {
      attend_in_pieces(all, head_dim, way.turn);
    } else {
      const Workspace workspace(attention_workspace_bytes(all, head_dim));
      kv::attend(all, head_dim, workspace.get());
    }
    omp_set_num_threads(threads);
    return outputs;
  }
  double bound(const Case& c) const override {
    if (c.int8 && c.n < kPrefillTokens) return c.shape == kPlain ? 3e-2 : kInt8AttentionError;
    bool codes = false;
    for (const CodecPair& codec : storages()[static_cast<size_t>(c.storage)].codecs)
      codes |= isa_ != "scalar" && (scores_codes(codec.k, c.head_dim) || weighs_codes(codec.v, c.head_dim));
    if (codes && (c.n < kPrefillTokens || c.scored)) return c.shape == kPlain ? 2e-4 : kCodeAttentionError;
    return c.shape == kPlain ? 3e-6 : c.shape == kLarge ? 1e-4 : kFloatAttentionError;
  }
  // Only the scalar loops and prefill look at each query's rows alone; decode steps take tiles.
  bool masks_values(const Case& c) const override {
    return c.n == 1 || isa_ == "scalar" || (c.n >= kPrefillTokens && !c.scored);
  }
  bool has_parts(const Case& c) const override { return c.rows > kSplitRows; }
  bool takes_any_order(const Case& c) const override {
    return c.n == 1 && !c.scored &&
           storages()[static_cast<size_t>(c.storage)].codecs.front().unit_rows() == 1;
  }
  bool chunks_change_no_bit(const Case& c) const override {
    return isa_ != "scalar" && c.n >= kPrefillTokens && !c.scored;
  }

 private:
  static void attend_in_pieces(std::vector<HeadQueries>& all, int head_dim, int64_t splits) {
    const Workspace workspace(PiecewiseAttention::workspace_bytes(all, head_dim));
    std::vector<std::span<const Span>> spans;
    for (HeadQueries& p : all) spans.push_back(std::exchange(p.spans, {}));  // they come piece by piece
    PiecewiseAttention attention(all, head_dim, workspace.get());
    std::vector<std::vector<PiecewiseAttention::Piece>> rounds;
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t last = all[i].visible + all[i].n - 1, step = kSplitRows * splits;
      for (int64_t row = 0, at = 0, round = 0; row < last; row += step, ++round) {
        const auto from = spans[i].begin() + at;
        for (int64_t held = 0; held < step && at < std::ssize(spans[i]); ++at)
          held += spans[i][static_cast<size_t>(at)].rows;
        rounds.resize(std::max(rounds.size(), static_cast<size_t>(round + 1)));
        rounds[static_cast<size_t>(round)].push_back(
            {i, {from, spans[i].begin() + at}, row, std::min(last, row + step)});
      }
    }
    if (pieces_take_any_order(all)) std::ranges::reverse(rounds);
    for (const auto& pieces : rounds) attention.run(pieces);
    attention.finish();
  }
  std::string isa_;
};

// The outputs of 8-bit products are those of the scalar path's plain loops, but for the rounding of sums and a weight's code
// that an exponential's last bit moves by one; they cannot be as good as 16 bits. Prefill stays exact.
void expect_int8(CpuBackend& backend, const Problem& p, const Exact& want, const Output& got,
                 const Output& scalar) {
  Problem exact_problem = p;
  exact_problem.shape.int8 = 0;
  const Output exact = backend.attend(exact_problem);
  if (p.n >= kPrefillTokens) return expect_same_bits(got.out, exact.out, "prefill");
  if (!scalar.out.empty()) {
    const std::vector<double> loops(scalar.out.begin(), scalar.out.end());
    // Cases are within 4e-7, or a weight's code apart: with Clang's SSE4 three of 112, a capped one by 8.3e-5.
    const double most = p.shape.shape != kPlain ? 1e-3 : p.shape.cap > 0 ? 2e-4 : 4e-5;
    EXPECT_LT(relative_error(got.out, loops), most) << "plain loops";
  }
  if (p.shape.shape != kPlain || p.shape.tail || p.rows < 30) return;
  const double error = relative_error(got.out, want.out);
  EXPECT_GT(error, 2e-3) << "too good for 8 bits";
  EXPECT_GT(error, 10 * relative_error(exact.out, want.out)) << "8 bits as good as 16";
}

void expect_all(const Case& c) {
  const std::vector<Problem> step = step_of(c, false);
  const Exact want = exact(step.front());
  std::vector<std::string> isas = cpu::available_isas();
  std::ranges::reverse(isas);  // the scalar one first
  Output scalar;
  for (const std::string& isa : isas) {
    // Its loops take a query after another, slowly.
    if (isa == "scalar" && c.group * c.n > kQueryBlock + 8) continue;
    SCOPED_TRACE(isa);
    CpuBackend backend(isa);
    const Properties properties(backend, c, step, want);
    properties.expect_all();
    if (isa == "scalar") scalar = properties.plain();
    if (c.int8) expect_int8(backend, step.front(), want, properties.plain(), scalar);
  }
}

const CodecPair& first_codec(int storage) { return storages()[static_cast<size_t>(storage)].codecs.front(); }

// Cases that can be stored, and whose reference takes no longer than some milliseconds.
bool fits(const Case& c) {
  for (const CodecPair& codec : storages()[static_cast<size_t>(c.storage)].codecs)
    if (!unsupported_reason(codec.k, c.head_dim).empty() || !unsupported_reason(codec.v, c.head_dim).empty())
      return false;
  const int64_t most = c.n < kPrefillTokens ? 1'500'000 : 3'000'000;
  return c.rows >= c.n && numbers_fit(c) && int64_t{c.group} * c.n * c.rows * c.head_dim <= most;
}

using Wanted = bool (*)(const CodecPair&);
bool is_float(const CodecPair& codec) { return descriptor_of(codec.k.format).elements == Elements::kFloats; }
bool is_code(const CodecPair& codec) { return !is_float(codec); }
bool is_block(const CodecPair& codec) { return int8_reason(codec.k).empty() && int8_reason(codec.v).empty(); }
// Prefill decodes whole tiles, with one loop for most formats.
bool is_for_prefill(const CodecPair& codec) { return is_float(codec) || codec.k.bits == 4; }

// A table of these axes and those of every table: how rows lie, and how a softmax ends.
void check_table(Wanted wanted, const std::vector<int>& head_dims, const Axis& queries,
                 std::vector<Axis> axes) {
  std::vector<int> chosen;
  for (int i = 0; i < static_cast<int>(storages().size()); ++i)
    if (wanted(first_codec(i))) chosen.push_back(i);
  axes.insert(axes.begin(), {axis(&Case::storage, chosen),
                             axis(&Case::head_dim, head_dims),
                             queries,
                             axis(&Case::unseen, {0, 3, 40}),
                             axis(&Case::tail, {0, 5, 40}),
                             axis(&Case::placing, {0, 1, 2, 3, 4, 5}),
                             axis(&Case::heads, {1, 3}),
                             {{&Case::sinks, &Case::cap}, {{0, 0}, {1, 0}, {0, 2}, {0, 50}, {1, 4}}}});
  for_each_case(Pairs(axes, fits).cases(), fits, expect_all);
}

void check_decode(Wanted wanted, const std::vector<int>& head_dims) {
  check_table(wanted, head_dims,
              {{&Case::group, &Case::n, &Case::scored},
               {{1, 1, 0},
                {2, 1, 1},
                {3, 1, 0},
                {4, 1, 0},
                {7, 1, 1},
                {40, 1, 0},
                {1, 2, 0},
                {3, 3, 1},
                {2, 31, 0},
                {20, 31, 1},
                {2, 40, 1}}},
              {axis(&Case::rows, {1, 3, 37, 64, 65, 130, 513, 1100}),
               axis(&Case::shape, {kPlain, kGrowing, kUnequal, kSpiky, kLarge}),
               {{&Case::keys, &Case::values}, {{0, 0}, {-13, 4}, {-80, 100}, {20, -80}, {80, 10}}}});
}

TEST(AttentionTable, DecodeOfFloats) { check_decode(is_float, {8, 24, 32, 64, 80, 96, 128, 256, 576}); }
TEST(AttentionTable, DecodeOfCodes) { check_decode(is_code, {24, 32, 64, 96, 128, 256, 576}); }

// Rows of one vector, half of one and several; blocks that fill no group of four; 7 queries: 4, 2 and 1.
TEST(AttentionTable, Int8) {
  check_table(is_block, {32, 64, 96, 128, 192, 256, 576},
              {{&Case::group, &Case::n}, {{1, 1}, {2, 1}, {4, 1}, {7, 1}, {40, 1}, {3, 3}, {2, 31}, {1, 32}}},
              {axis(&Case::int8, {1}), axis(&Case::rows, {1, 37, 65, 130, 513, 1100}),
               axis(&Case::shape, {kPlain, kGrowing})});
}

// Tokens around the panels of 32, rows around the tiles of 64, groups around the 8 panels of a task.
TEST(AttentionTable, Prefill) {
  check_table(is_for_prefill, {8, 64, 80, 256},
              {{&Case::group, &Case::n}, {{1, 32}, {2, 33}, {9, 40}, {17, 35}, {3, 63}, {2, 100}, {1, 300}}},
              {axis(&Case::rows, {33, 130, 191, 300, 600}), axis(&Case::shape, {kPlain, kGrowing, kLarge})});
}

}  // namespace
}  // namespace kv::attention_table_test
