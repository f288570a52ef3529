#include "harness/verify.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "harness/metrics.h"
#include "kernels/encoding.h"
#include "variants/build.h"

namespace kv {
namespace {

// Rows of one head, [rows, head_dim].
struct HeadRows {
  std::vector<float> k, v;
};

double metric(std::string_view name, std::span<const double> got, std::span<const double> want) {
  for (const Metric& m : metrics()) {
    if (m.name == name) return m.compute(got, want);
  }
  throw std::logic_error("no metric '" + std::string(name) + "'");
}

// All tokens of some kv heads as they came, read in chunks since a whole sequence of all heads may not fit.
std::vector<HeadRows> read_heads(const Workload& workload, int sequence, int layer, int64_t tokens,
                                 const std::vector<bool>& wanted) {
  constexpr int64_t kChunk = 4096;
  const int heads = workload.shape().kv_heads, d = workload.shape().head_dim;
  std::vector<HeadRows> rows(static_cast<size_t>(heads));
  for (int h = 0; h < heads; ++h) {
    if (!wanted[static_cast<size_t>(h)]) continue;
    for (auto* to : {&rows[static_cast<size_t>(h)].k, &rows[static_cast<size_t>(h)].v})
      to->reserve(static_cast<size_t>(tokens * d));
  }
  std::vector<float> k(static_cast<size_t>(heads * std::min(kChunk, tokens) * d)), v(k.size());
  for (int64_t first = 0; first < tokens; first += kChunk) {
    const int64_t n = std::min(kChunk, tokens - first);
    workload.read(sequence, layer, first, n, nullptr, k.data(), v.data());
    for (int h = 0; h < heads; ++h) {
      if (!wanted[static_cast<size_t>(h)]) continue;
      HeadRows& to = rows[static_cast<size_t>(h)];
      to.k.insert(to.k.end(), k.begin() + h * n * d, k.begin() + (h + 1) * n * d);
      to.v.insert(to.v.end(), v.begin() + h * n * d, v.begin() + (h + 1) * n * d);
    }
  }
  return rows;
}

HeadRows pick(const HeadRows& all, std::span<const int64_t> tokens, int d) {
  HeadRows some;
  for (const int64_t t : tokens) {
    some.k.insert(some.k.end(), all.k.begin() + t * d, all.k.begin() + (t + 1) * d);
    some.v.insert(some.v.end(), all.v.begin() + t * d, all.v.begin() + (t + 1) * d);
  }
  return some;
}

HeadRows stored_rows(Cache& cache, SequenceId id, int layer, int head) {
  const int d = cache.shape().head_dim;
  const std::vector<Span> spans = cache.spans(id, layer, head);
  int64_t rows = 0;
  for (const Span& span : spans) rows += span.rows;
  HeadRows stored{std::vector<float>(static_cast<size_t>(rows * d)),
                  std::vector<float>(static_cast<size_t>(rows * d))};
  int64_t at = 0;
  for (const Span& span : spans) {
    decode_rows(span.k, d, 0, span.rows, stored.k.data() + at * d);
    decode_rows(span.v, d, 0, span.rows, stored.v.data() + at * d);
    at += span.rows;
  }
  return stored;
}

// Outputs of the checked heads, one after another.
struct Collected {
  std::vector<double> got, full, kept, stored;
  std::vector<double> kl;
};

void append(std::vector<double>& to, const Eigen::VectorXd& values) {
  to.insert(to.end(), values.data(), values.data() + values.size());
}

void require_set(std::vector<int64_t> kept, int64_t tokens) {
  std::sort(kept.begin(), kept.end());
  if (std::adjacent_find(kept.begin(), kept.end()) != kept.end() ||
      (!kept.empty() && (kept.front() < 0 || kept.back() >= tokens))) {
    throw std::logic_error("a cache says that it kept a token twice, or one that has not come");
  }
}

// By how many of `tokens` each is older than the newest of them: its distance in the cache.
std::vector<int64_t> places_back(const std::vector<int64_t>& tokens) {
  std::vector<int64_t> sorted = tokens, back;
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t token : tokens)
    back.push_back(sorted.end() - std::upper_bound(sorted.begin(), sorted.end(), token));
  return back;
}

// `all` are the tokens of its kv head as they came, `encoded` those that are stored.
void check_head(Cache& cache, const Output& output, int q_head, const HeadRows& all, const HeadRows& encoded,
                int64_t tokens, Collected& c) {
  const int d = cache.shape().head_dim, kv_head = q_head / cache.shape().group();
  const std::span<const float> q(output.q + q_head * d, static_cast<size_t>(d));
  const std::vector<int64_t> kept = cache.kept(output.sequence, output.layer, kv_head);
  // Attention to rows whose tokens are these.
  const bool turned = turns_rows(cache.spec());
  const reference::Turns turns =
      turned ? reference::Turns(rotation_of(cache.shape().rope, d), tokens) : reference::Turns();
  const auto attend = [&](const HeadRows& rows, const std::vector<int64_t>& of) {
    return turned ? reference::attend_turned(q, rows.k, rows.v, turns, places_back(of))
                  : reference::attend(q, rows.k, rows.v, static_cast<int64_t>(of.size()));
  };
  std::vector<int64_t> every(static_cast<size_t>(tokens));
  std::iota(every.begin(), every.end(), int64_t{0});
  const auto full = attend(all, every);
  require_set(kept, tokens);
  const int64_t count = static_cast<int64_t>(kept.size());
  const auto stored = attend(encoded, kept);
  append(c.full, full.out);
  append(c.stored, stored.out);
  if (count == tokens) {
    append(c.kept, full.out);  // nothing was dropped; the order of tokens does not matter
  } else {
    const HeadRows some = pick(all, kept, d);
    append(c.kept, attend(some, kept).out);
  }
  for (int i = 0; i < d; ++i) c.got.push_back(static_cast<double>(output.out[q_head * d + i]));
  std::vector<double> reference_p, cache_p;
  for (int64_t i = 0; i < count; ++i) {
    reference_p.push_back(full.probabilities[kept[static_cast<size_t>(i)]]);
    cache_p.push_back(stored.probabilities[i]);
  }
  // KL(cache || reference): finite also where the cache dropped tokens, whose share of its own attention is
  // 0.
  c.kl.push_back(metric("err_attn_kl", reference_p, cache_p));
}

}  // namespace

reference::Rotation rotation_of(const Rope& rope, int head_dim) {
  reference::Rotation rotation{{}, rope.pairs == RopePairs::kHalves};
  for (int i = 0; i < head_dim / 2; ++i) rotation.frequency.push_back(rope.frequency(i, head_dim));
  return rotation;
}

double relative_l2(std::span<const double> a, std::span<const double> b) {
  return metric("err_rel_l2", a, b);
}

Errors verify(Cache& cache, const Workload& workload, int64_t tokens, std::span<const Output> outputs) {
  const int q_heads = cache.shape().q_heads;
  const int64_t total = static_cast<int64_t>(outputs.size()) * q_heads;
  const int64_t checked = std::min<int64_t>(total, kMaxCheckedHeads);
  Collected c;
  int64_t next = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<int> heads;
    while (next < checked && next * total / checked < static_cast<int64_t>(i + 1) * q_heads) {
      heads.push_back(static_cast<int>(next * total / checked - static_cast<int64_t>(i) * q_heads));
      ++next;
    }
    if (heads.empty()) continue;
    std::vector<bool> wanted(static_cast<size_t>(cache.shape().kv_heads), false);
    for (const int h : heads) wanted[static_cast<size_t>(h / cache.shape().group())] = true;
    const auto rows = read_heads(workload, outputs[i].workload_sequence, outputs[i].layer, tokens, wanted);
    HeadRows stored;
    int stored_head = -1;
    for (const int h : heads) {  // in order: those of a kv head follow each other
      const int kv_head = h / cache.shape().group();
      if (kv_head != std::exchange(stored_head, kv_head)) {
        stored = {};
        stored = stored_rows(cache, outputs[i].sequence, outputs[i].layer, kv_head);
      }
      check_head(cache, outputs[i], h, rows[static_cast<size_t>(kv_head)], stored, tokens, c);
    }
  }
  Errors e;
  e.kernel_bound = kernel_error_bound(cache.spec());
  e.max_abs = metric("err_max_abs", c.got, c.full);
  e.rel_l2 = relative_l2(c.got, c.full);
  e.cosine = metric("err_cosine", c.got, c.full);
  e.attn_kl = std::accumulate(c.kl.begin(), c.kl.end(), 0.0) / static_cast<double>(c.kl.size());
  e.codec_rel_l2 = relative_l2(c.stored, c.kept);
  e.retention_rel_l2 = relative_l2(c.kept, c.full);
  e.kernel_rel_l2 = relative_l2(c.got, c.stored);
  return e;
}

std::string in_short(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", x);
  return text;
}

Errors mean_of(std::span<const Errors> errors) {
  Errors mean;
  mean.kernel_bound = errors[0].kernel_bound;
  for (const Errors& e : errors) {
    // NaN stays: std::max would lose it.
    mean.max_abs = e.max_abs <= mean.max_abs ? mean.max_abs : e.max_abs;
    mean.kernel_rel_l2 = e.kernel_rel_l2 <= mean.kernel_rel_l2 ? mean.kernel_rel_l2 : e.kernel_rel_l2;
    for (const auto field : {&Errors::rel_l2, &Errors::cosine, &Errors::attn_kl, &Errors::codec_rel_l2,
                             &Errors::retention_rel_l2}) {
      mean.*field += e.*field / static_cast<double>(errors.size());
    }
  }
  return mean;
}

std::string Errors::failure() const {
  // Written so that NaN fails.
  if (!(kernel_rel_l2 <= kernel_bound)) {
    return "attention differs from FP64 on the same stored rows by " + in_short(kernel_rel_l2) + " (bound " +
           in_short(kernel_bound) + ")";
  }
  if (!std::isfinite(rel_l2)) return "the output is not finite";
  return "";
}

void Errors::write(Row& cell) const {
  cell.set("err_max_abs", max_abs);
  cell.set("err_rel_l2", rel_l2);
  cell.set("err_cosine", cosine);
  cell.set("err_attn_kl", attn_kl);
  cell.set("err_codec_rel_l2", codec_rel_l2);
  cell.set("err_retention_rel_l2", retention_rel_l2);
  cell.set("err_kernel_rel_l2", kernel_rel_l2);
}

}  // namespace kv
