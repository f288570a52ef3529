#include "harness/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "harness/io/text.h"
#include "harness/verify/rows.h"
#include "harness/verify/state_check.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/prefill.h"
#include "variants/cache/spec.h"

namespace kv::verify {
namespace {

// Outputs of the checked heads, one after another.
struct Collected {
  std::vector<double> got, full, kept, read, stored;
  std::vector<double> attention = std::vector<double>(metrics().size());  // sums over heads
  int heads = 0;
  SelectionCheck selection;
  std::string overflow;   // the first head's that has one
  std::string misstored;  // the first fault in stored rows
};

std::string head_of(int layer, int kv_head) {
  return " (layer " + std::to_string(layer) + ", kv head " + std::to_string(kv_head) + ")";
}

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

// Cache positions from each of `tokens` to the newest of them.
std::vector<int64_t> distances(const std::vector<int64_t>& tokens) {
  std::vector<int64_t> sorted = tokens, distance;
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t token : tokens)
    distance.push_back(sorted.end() - std::upper_bound(sorted.begin(), sorted.end(), token));
  return distance;
}

// The first token that attention may see.
int64_t first_seen(const Output& output, const std::vector<int64_t>& kept, int64_t tokens) {
  const int64_t first = output.window > 0 ? std::max<int64_t>(0, tokens - output.window) : 0;
  return std::all_of(kept.begin(), kept.end(), [&](int64_t token) { return token >= first; }) ? first : 0;
}

// FP64's weights of all tokens and of those read, the latter first; a sink's weight lies between.
void add_attention(const reference::HeadResult& full, const reference::HeadResult& stored, bool has_sink,
                   std::span<const int64_t> read, int64_t first, Collected& c) {
  std::vector<double> reference_p, cache_p(stored.probabilities.begin(), stored.probabilities.end());
  std::vector<bool> is_read(static_cast<size_t>(full.probabilities.size()), false);
  for (const int64_t token : read) {
    reference_p.push_back(full.probabilities[token - first]);
    is_read[static_cast<size_t>(token - first)] = true;
  }
  if (has_sink) {
    reference_p.push_back(full.sink);
    cache_p.push_back(stored.sink);
  }
  for (size_t i = 0; i < is_read.size(); ++i) {
    if (!is_read[i]) reference_p.push_back(full.probabilities[static_cast<Eigen::Index>(i)]);
  }
  cache_p.resize(reference_p.size(), 0.0);
  // KL(cache || reference) is finite even for dropped tokens: their share of the cache's attention is 0.
  for (size_t i = 0; i < c.attention.size(); ++i) {
    const Metric& m = *metrics()[i];
    if (m.of == Metric::Of::kAttention) c.attention[i] += m.compute(reference_p, cache_p);
  }
}

// `all`: the tokens of its KV head before encoding; `encoded`: the rows that it read, stored ones but for a prompt that read
// `all`.
void check_head(Cache& cache, const Output& output, int q_head, const HeadRows& all, const HeadRows& encoded,
                int64_t tokens, Collected& c) {
  const int d = cache.shape().head_dim, kv_head = q_head / cache.shape().group();
  const int width = cache.shape().out_dim();  // latent rows hold V first; the rest is no output
  const std::span<const float> q(output.q + q_head * d, static_cast<size_t>(d));
  const std::vector<int64_t> kept = cache.kept(output.sequence, output.layer, kv_head);
  // Attends to the rows of these tokens.
  const bool rotates = rotates_at_read(cache.spec(output.layer));
  const reference::RotationTable rotations =
      rotates ? reference::RotationTable(rotation_of(cache.shape().rope, d), tokens)
              : reference::RotationTable();
  reference::SoftmaxTerms terms{.cap = static_cast<double>(output.score_cap)};
  if (output.sink_logits) terms.sink = static_cast<double>(output.sink_logits[q_head]);
  const auto attend = [&](const HeadRows& rows, const std::vector<int64_t>& of) {
    return rotates ? reference::attend_rotated(q, rows.k, rows.v, rotations, distances(of), terms)
                   : reference::attend(q, rows.k, rows.v, static_cast<int64_t>(of.size()), terms);
  };
  require_set(kept, tokens);
  const int64_t first = first_seen(output, kept, tokens);
  std::vector<int64_t> seen(static_cast<size_t>(tokens - first));
  std::iota(seen.begin(), seen.end(), first);
  const auto full = first > 0 ? attend(pick(all, seen, d), seen) : attend(all, seen);
  const int64_t count = static_cast<int64_t>(kept.size());
  const std::vector<int64_t> slots = cache.read_slots(output.sequence, output.layer, kv_head);
  const bool reads_all = slots.size() == kept.size();
  std::vector<int64_t> read;
  for (const int64_t slot : slots) read.push_back(kept[static_cast<size_t>(slot)]);
  const auto stored = attend(reads_all ? encoded : pick(encoded, slots, d), read);
  append(c.full, full.out.head(width));
  append(c.stored, stored.out.head(width));
  if (count == tokens - first) {
    append(c.kept, full.out.head(width));  // nothing was dropped; the order of tokens does not matter
  } else {
    const HeadRows some = pick(all, kept, d);
    append(c.kept, attend(some, kept).out.head(width));
  }
  if (reads_all) {
    c.read.insert(c.read.end(), c.kept.end() - width, c.kept.end());
  } else {
    append(c.read, attend(pick(all, read, d), read).out.head(width));
  }
  for (int i = 0; i < width; ++i) c.got.push_back(static_cast<double>(output.out[q_head * width + i]));
  add_attention(full, stored, terms.sink.has_value(), read, first, c);
  ++c.heads;
}

// Checks some query heads of an output, ascending. `output` gives the place of its rows in `cache`, `of` their place
// in the workload. `prompt`: as verify()'s.
void check_heads(Cache& cache, const Output& output, const Output& of, std::span<const int> heads,
                 const workload::Workload& workload, int64_t tokens, int64_t prompt, Collected& c) {
  const int group = cache.shape().group();
  std::vector<bool> wanted(static_cast<size_t>(cache.shape().kv_heads), false);
  for (const int h : heads) wanted[static_cast<size_t>(h / group)] = true;
  const auto rows = read_heads(workload, of.workload_sequence, of.layer, tokens, wanted);
  HeadRows stored;
  int stored_head = -1;
  for (const int h : heads) {  // heads of a KV head are adjacent
    const int kv_head = h / group;
    const HeadRows& all = rows[static_cast<size_t>(kv_head)];
    if (kv_head != std::exchange(stored_head, kv_head)) {
      stored = {};
      stored = stored_rows(cache, output.sequence, output.layer, kv_head);
      if (c.overflow.empty() && !all_finite(stored)) {
        c.overflow = overflow_of(cache, output.sequence, output.layer, kv_head, all);
        if (!c.overflow.empty()) c.overflow += head_of(of.layer, kv_head);
      }
      require_set(cache.kept(output.sequence, output.layer, kv_head), tokens);
      c.selection.add(cache, output, kv_head);
      if (c.misstored.empty()) {
        c.misstored = misplaced_row(cache, output.sequence, output.layer, kv_head, all);
        if (!c.misstored.empty()) c.misstored += head_of(of.layer, kv_head);
      }
    }
    const bool own_rows = prompt == tokens && prompt > 1 && prefills_full(cache.spec(output.layer));
    check_head(cache, output, h, all, own_rows ? all : stored, tokens, c);
  }
}

// Checked heads of each output, ascending.
std::vector<std::vector<int>> checked_heads(const CacheShape& shape, int64_t tokens, size_t outputs) {
  const int64_t q_heads = shape.q_heads, total = static_cast<int64_t>(outputs) * q_heads;
  const int64_t most =
      std::max<int64_t>(1, kMaxCheckedHeads * kMostCheckedTokens / std::max(tokens, kMostCheckedTokens));
  const int64_t checked = std::min(total, most);
  const int64_t kv_heads = std::max<int64_t>(1, kMostCheckedValues / (tokens * shape.head_dim));
  std::vector<std::vector<int>> heads(outputs);
  int64_t next = 0;
  for (size_t i = 0; i < outputs; ++i) {
    while (next < checked && next * total / checked < static_cast<int64_t>(i + 1) * q_heads) {
      heads[i].push_back(static_cast<int>(next * total / checked - static_cast<int64_t>(i) * q_heads));
      ++next;
    }
    if (kv_heads < shape.kv_heads)
      heads[i] = sampled_heads(std::ssize(heads[i]), shape.kv_heads, shape.group(), kv_heads);
  }
  return heads;
}

// "0 1 16 17"; empty if all heads.
std::string sample_text(const std::vector<int>& heads, int q_heads) {
  if (std::ssize(heads) == q_heads) return "";
  std::string text;
  for (const int head : heads) text += (text.empty() ? "" : " ") + std::to_string(head);
  return text;
}

}  // namespace

std::vector<int> sampled_heads(int64_t count, int kv_heads, int group, int64_t most_kv_heads) {
  const int64_t of = std::min<int64_t>({most_kv_heads, kv_heads, count});
  std::vector<int> heads;
  for (int64_t i = 0; i < of; ++i) {
    const int64_t own = std::min<int64_t>(group, (i + 1) * count / of - i * count / of);
    for (int64_t j = 0; j < own; ++j)
      heads.push_back(static_cast<int>(i * kv_heads / of * group + j * group / own));
  }
  return heads;
}

reference::Rotation rotation_of(const Rope& rope, int head_dim) {
  reference::Rotation rotation{{}, rope.pairs == RopePairs::kHalfSplit};
  for (int i = 0; i < head_dim / 2; ++i) rotation.frequency.push_back(rope.frequency(i, head_dim));
  return rotation;
}

double relative_l2(std::span<const double> a, std::span<const double> b) {
  return metrics()[metric_index("err_rel_l2")]->compute(a, b);
}

Errors verify(Cache& cache, const workload::Workload& workload, int64_t tokens,
              std::span<const Output> outputs, int64_t prompt) {
  Collected c;
  const std::vector<std::vector<int>> heads_of = checked_heads(cache.shape(), tokens, outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<int>& heads = heads_of[i];
    if (heads.empty()) continue;
    if (!retention_of(cache.spec(outputs[i].layer)).cuts_prompt || prompt != tokens) {
      check_heads(cache, outputs[i], outputs[i], heads, workload, tokens, prompt, c);
      continue;
    }
    memory::Ledger ledger;
    const auto uncut =
        before_the_cut(cache, workload, outputs[i].workload_sequence, outputs[i].layer, tokens, ledger);
    Output there = outputs[i];
    there.sequence = there.layer = 0;
    check_heads(*uncut, there, outputs[i], heads, workload, tokens, prompt, c);
  }
  Errors e;
  e.heads = c.heads;
  if (!heads_of.empty()) e.sample = sample_text(heads_of.front(), cache.shape().q_heads);
  e.overflow = c.overflow;
  for (const Output& output : outputs) {
    const Spec& spec = cache.spec(output.layer);
    if (e.misstored.empty())
      e.misstored = codec_failure(codec_of(spec).make(spec.codec), cache.shape().head_dim);
    e.kernel_bound = std::max(e.kernel_bound, kernel_error_bound(spec));
  }
  if (e.misstored.empty()) e.misstored = c.misstored;
  for (size_t i = 0; i < e.metrics.size(); ++i) {
    const Metric& m = *metrics()[i];
    e.metrics[i] = m.of == Metric::Of::kOutputs ? m.compute(c.got, c.full) : c.attention[i] / c.heads;
  }
  e.codec_rel_l2 = relative_l2(c.stored, c.read);
  e.selection_rel_l2 = relative_l2(c.read, c.kept);
  e.selection = c.selection;
  e.retention_rel_l2 = relative_l2(c.kept, c.full);
  e.kernel_rel_l2 = relative_l2(c.got, c.stored);
  return e;
}

std::string in_short(double x) { return io::formatted("%.2g", x); }

Errors mean_of(std::span<const Errors> errors) {
  // NaN stays: std::max would lose it.
  const auto larger = [](double most, double x) { return x <= most ? most : x; };
  const auto count = static_cast<double>(errors.size());
  Errors mean;
  mean.kernel_bound = errors[0].kernel_bound;
  mean.heads = errors[0].heads;
  mean.sample = errors[0].sample;
  for (const Errors& e : errors) {
    if (mean.overflow.empty()) mean.overflow = e.overflow;
    if (mean.misstored.empty()) mean.misstored = e.misstored;
    mean.kernel_rel_l2 = larger(mean.kernel_rel_l2, e.kernel_rel_l2);
    for (size_t i = 0; i < e.metrics.size(); ++i) {
      double& of_all = mean.metrics[i];
      if (metrics()[i]->over == Metric::Over::kLargest) {
        of_all = larger(of_all, e.metrics[i]);
      } else {
        of_all += e.metrics[i] / count;
      }
    }
    mean.codec_rel_l2 += e.codec_rel_l2 / count;
    mean.retention_rel_l2 += e.retention_rel_l2 / count;
    mean.selection_rel_l2 += e.selection_rel_l2 / count;
    mean.selection.add(e.selection);
  }
  return mean;
}

std::string Errors::failure() const {
  // Overflow comes first: no arithmetic recovers lost values.
  if (!overflow.empty()) return overflow;
  // Written so that NaN fails.
  if (!(kernel_rel_l2 <= kernel_bound)) {
    return "attention differs from FP64 on the same stored rows by " + in_short(kernel_rel_l2) + " (bound " +
           in_short(kernel_bound) + ")";
  }
  if (state_rel_l2 && !(*state_rel_l2 <= StateCheck::kBound)) {
    return "a linear layer's state differs from the FP64 recurrence over the same inputs by " +
           in_short(*state_rel_l2) + " (bound " + in_short(StateCheck::kBound) + ")";
  }
  if (!misstored.empty()) return misstored;
  if (!selection.failure().empty()) return selection.failure();
  if (!std::isfinite(metric("err_rel_l2"))) return "the output is not finite";
  return "";
}

}  // namespace kv::verify
