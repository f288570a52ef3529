// Counts the bytes and multiply-adds of one attend from the spans.
#include <algorithm>
#include <optional>

#include "harness/measure/cell.h"
#include "kernels/attention.h"
#include "kernels/format/encoding.h"
#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/spec.h"

namespace kv::measure {
namespace {

// Sums the work of one attend, head by head.
class WorkCount {
 public:
  WorkCount(const CacheShape& shape, const memory::Ledger& ledger) : shape_(shape), ledger_(ledger) {}

  void begin(const Spec& spec) {
    selection_ = &selection_of(spec);
    stage_ = &spec.selection;
    decoded_ = codec_of(spec).make(spec.codec).read_copy;
    rotated_ = rotates_at_read(spec);
    in_files_ = has_tiers(spec);
  }
  bool in_files() const { return in_files_; }

  // Adds all rows of a head; attention reads only the slots `read`.
  void add(std::span<const Span> spans, std::span<const int64_t> read) {
    int64_t first = 0;
    for (const Span& span : spans) {
      const auto count =
          std::ranges::lower_bound(read, first + span.rows) - std::ranges::lower_bound(read, first);
      const int64_t all = held(span, count);
      multiply(span, count);
      if (selection_->weighs) {
        work_.read += all;
        multiply(span, span.rows);
      }
      first += span.rows;
    }
    if (selection_->reads_all()) return;
    const int64_t bounds = selection_->choice_bytes(*stage_, first, shape_.head_dim);
    work_.read += bounds;
    work_.multiply_adds.floats += bounds / static_cast<int64_t>(sizeof(uint16_t));
  }
  const AttendWork& work() const { return work_; }

 private:
  // Counts a span's bytes; attention reads `read` of its rows.
  int64_t held(const Span& span, int64_t read) {
    return held(span.k, span.rows, read) +
           (shape_.is_latent() ? 0 : held(span.v, span.rows, read));  // else they are the same
  }
  int64_t held(const Side& side, int64_t rows, int64_t read_rows) {
    const int64_t data = units(side, rows) * unit_data_bytes(side.encoding, shape_.head_dim),
                  meta = units(side, rows) * unit_meta_bytes(side.encoding, shape_.head_dim);
    work_.payload += data;
    work_.metadata += meta;
    // A selection that reads some rows reads them one by one: each row is a unit.
    const int64_t read = read_rows == rows ? data + meta : (data + meta) / rows * read_rows;
    work_.read += read;
    const std::optional<Tier> tier = ledger_.tier_at(side.data);
    if (tier) {
      (*tier == Tier::kWarm ? work_.warm : work_.hot) += read;
    } else if (in_files_) {
      work_.payload_in_files += data;
    }
    return data + meta;
  }
  void multiply(const Span& span, int64_t rows) {
    const auto add = [&](int width, bool as_codes) {
      (as_codes ? work_.multiply_adds.codes : work_.multiply_adds.floats) += rows * width * shape_.group();
    };
    add(shape_.head_dim, !decoded_ && !rotated_ && scores_codes(span.k.encoding, shape_.head_dim));
    add(shape_.out_dim(), !decoded_ && weighs_codes(span.v.encoding, shape_.head_dim));
  }

  const CacheShape& shape_;
  const memory::Ledger& ledger_;
  AttendWork work_;
  // the layer's; rows in no tier are in a file if in_files_
  const SelectionEntry* selection_ = nullptr;
  const Stage* stage_ = nullptr;
  bool decoded_ = false, rotated_ = false, in_files_ = false;
};

}  // namespace

AttendWork attend_work(Cache& cache, std::span<const SequenceId> ids, const memory::Ledger& ledger) {
  const CacheShape& s = cache.shape();
  WorkCount count(s, ledger);
  for (const SequenceId id : ids) {
    for (int layer = 0; layer < s.layers; ++layer) {
      if (!cache.keeps_rows(layer)) continue;
      count.begin(cache.spec(layer));
      // All heads have the same rows in files: those are read once.
      std::vector<Span> spans = cache.spans(id, layer, 0);
      const auto from_files = std::ssize(spans) - std::ssize(cache.resident_spans(id, layer, 0));
      for (int head = 0; head < s.kv_heads; ++head) {
        if (head > 0 && !count.in_files()) spans = cache.spans(id, layer, head);
        if (head > 0 && count.in_files())
          std::ranges::copy(cache.resident_spans(id, layer, head), spans.begin() + from_files);
        count.add(spans, cache.read_slots(id, layer, head));
      }
    }
  }
  return count.work();
}

}  // namespace kv::measure
