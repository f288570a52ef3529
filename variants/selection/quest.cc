// quest: the pages whose keys may score highest (Quest, Tang et al. 2024, arXiv:2406.10774, section 3).
//
// Each page of `page` rows keeps the smallest and the largest value of every key channel. No key k of the page
// scores more with a query q than sum over d of max(q_d * min_d, q_d * max_d), the page's bound. The pages of the
// largest bounds are read, `top` of all, rounded up. The page that holds the newest row is always one of them, as in the
// authors' code, whose budget includes the last page. The older one of two pages with equal bounds is read.
//
// Query heads that share a kv head read the same pages: those of the largest sum of their bounds. A sum, and not the
// largest, since a softmax does not change when all scores of a head do by as much, and so the choice must not either;
// and the sum over a group costs as much as one head. (The paper's models have one query head a kv head.)
//
// Differences from the authors' setting: their budget is a number of tokens, like top=0.01 with `least` of its pages; they
// read prompts in full, and here prompts are read by selection; their first two layers select nothing, as in
// `contiguous/f16/quest + 0-1:contiguous/f16`.
//
// The bounds are of stored and decoded keys, in the codec's order of channels. They can be made again from the rows at any
// time, so files, forks, truncation and shared prefixes leave them out. They are f16, rounded to nearest: exact for f16
// rows, for others off by 2^-11 of their size.
#include <algorithm>
#include <array>

#include "kernels/cpu/weights/multiply.h"
#include "kernels/encode.h"
#include "kernels/math.h"
#include "variants/list.h"
#include "variants/selection/largest.h"

namespace kv::selection {
namespace {

constexpr float kLargestF16 = 65504.0f;  // beyond it a bound would be infinite, and 0 times it no number

struct Settings {
  int64_t page, top, least;  // top: hundredths
  explicit Settings(const Stage& stage)
      : page(stage.integer("page")), top(stage.hundredths("top")), least(stage.integer("least")) {}
  int64_t pages(int64_t rows) const { return (rows + page - 1) / page; }
  int64_t pages_read(int64_t rows) const {
    return std::max((pages(rows) * top + 99) / 100, std::min(least, pages(rows)));
  }
  // The newest page is one of those read, and may be filled in part.
  int64_t rows_read(int64_t rows) const { return rows - (pages(rows) - pages_read(rows)) * page; }
};

int64_t page_bytes(int head_dim) { return 2 * head_dim * static_cast<int64_t>(sizeof(uint16_t)); }

class Quest : public Selection {
 public:
  Quest(const Stage& stage, const SelectionContext& context)
      : settings_(stage),
        head_dim_(context.head_dim),
        memory_(context.memory),
        bounds_(*context.memory,
                static_cast<size_t>(settings_.pages(context.max_tokens) * page_bytes(head_dim_)),
                ByteKind::kMetadata) {}
  // The copy finds its bounds in its rows.
  Quest(const Quest& other)
      : Selection(other),
        settings_(other.settings_),
        head_dim_(other.head_dim_),
        memory_(other.memory_),
        bounds_(*other.memory_, other.bounds_.size(), ByteKind::kMetadata),
        rows_(other.rows_) {
    memory_->copy(bounds_.data(), other.bounds_.data(), bounds_.size());
  }
  std::unique_ptr<Selection> clone() const override { return std::make_unique<Quest>(*this); }

  std::vector<RowRange> choose(const SelectionInput& in) override {
    take_in(in.spans, in.rows);
    // The larger product of a positive q_d is that with max_d, and of a negative q_d that with min_d.
    std::array<float, 2 * kMaxHeadDim> q{};  // [min, max] as a page has them
    for (int i = 0; i < in.group * head_dim_; ++i) {
      const int d = i % head_dim_;
      q[static_cast<size_t>(in.q[i] < 0.0f ? d : head_dim_ + d)] += in.q[i];
    }
    const int64_t pages = settings_.pages(in.rows);
    cpu::multiply_weights(bounds_.data(), cpu::WeightType::kF16, pages, 2 * head_dim_, q.data(), 1,
                          in.scores.data(), pages);
    in.scores[static_cast<size_t>(pages - 1)] = INFINITY;
    return largest(in.scores, in.order, settings_.pages_read(in.rows), settings_.page, in.rows);
  }

  // A page that is cut is made anew from the rows that are left of it.
  void truncate(int64_t rows) override { rows_ = std::min(rows_, rows / settings_.page * settings_.page); }

 private:
  uint16_t* page_of(int64_t row) const {
    return reinterpret_cast<uint16_t*>(bounds_.data()) + row / settings_.page * 2 * head_dim_;
  }

  // The rows that have come since the last choice. Found from the newest: they are few, and spans may be many.
  void take_in(std::span<const Span> spans, int64_t rows) {
    std::array<float, kMaxHeadDim> key{};
    size_t next = spans.size();
    int64_t first = rows;  // first row of span `next`
    while (first > rows_) first -= spans[--next].rows;
    for (; rows_ < rows; first += spans[next++].rows) {
      for (; rows_ < first + spans[next].rows; ++rows_) {
        decode_rows(spans[next].k, head_dim_, rows_ - first, 1, key.data());
        add(key.data(), page_of(rows_), rows_ % settings_.page == 0);
      }
    }
  }

  void add(const float* key, uint16_t* page, bool is_first) const {
    uint16_t *least = page, *most = page + head_dim_;
    for (int d = 0; d < head_dim_; ++d) {
      const float x = std::clamp(key[d], -kLargestF16, kLargestF16);
      if (is_first || x < f16_to_f32(least[d])) least[d] = f32_to_f16(x);
      if (is_first || x > f16_to_f32(most[d])) most[d] = f32_to_f16(x);
    }
  }

  const Settings settings_;
  const int head_dim_;
  Memory* const memory_;
  Block bounds_;      // f16 [pages, 2, head_dim]: the least of every channel, then the most
  int64_t rows_ = 0;  // that the bounds are of
};

std::string quest_refuses(const Codec& codec, const RetentionEntry& retention) {
  if (!retention.keeps_all) return "keeps bounds of pages of rows, and the retention overwrites rows";
  if (codec.unit_rows() > 1 || codec.residual > 0)
    return "keeps bounds of stored keys, and the codec encodes raw rows anew";
  return "";
}

}  // namespace

const SelectionEntry quest{
    {.name = "quest",
     .help = "reads the pages whose least and largest keys allow the highest scores",
     .source = "Quest, Tang et al. 2024 (arXiv:2406.10774)",
     .parameters = {Parameter::integer("page", "16", 1, 4096, {8}, "rows of a page"),
                    Parameter::decimal(
                        "top", "0.1", 1, 100, {25},
                        "share of the pages that is read, rounded up; the newest is one of them"),
                    Parameter::integer("least", "1", 1, 1 << 20, {2},
                                       "pages that are read in any case, if there are as many")}},
    {.make = make_selection<Quest>,
     .metadata_bytes =
         [](const Stage& stage, const SelectionContext& context) {
           return Settings(stage).pages(context.max_tokens) * page_bytes(context.head_dim);
         },
     .candidates = [](const Stage& stage, int64_t rows) { return Settings(stage).pages(rows); },
     .choice_bytes = [](const Stage& stage, int64_t rows,
                        int head_dim) { return Settings(stage).pages(rows) * page_bytes(head_dim); },
     .rows_read = [](const Stage& stage, int64_t rows, int64_t) { return Settings(stage).rows_read(rows); },
     .refuses = quest_refuses}};

}  // namespace kv::selection
