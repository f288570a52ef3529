// Shared by the contract tests: every spec worth testing, small workloads, and one way to drive a cache.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/memory/ledger.h"
#include "harness/verify/reference/attention.h"
#include "harness/verify/reference/hadamard.h"
#include "kernels/encode.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"
#include "kernels/threads.h"
#include "tests/normal.h"
#include "tests/variants/named_function.h"
#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/predicted_bytes.h"
#include "variants/list.h"

namespace kv {

// How GoogleTest names a case.
inline void PrintTo(const Spec& spec, std::ostream* out) { *out << spec.print(); }

}  // namespace kv

namespace kv::contract {

#if defined(__has_feature)
inline constexpr bool kSanitizesAddresses = __has_feature(address_sanitizer);
inline constexpr bool kSanitizesThreads = __has_feature(thread_sanitizer);
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitizesAddresses = true, kSanitizesThreads = false;
#else
inline constexpr bool kSanitizesAddresses = false, kSanitizesThreads = false;
#endif

// So many threads share even the shortest loop until this goes.
class ThreadsAtEveryLoop {
 public:
  explicit ThreadsAtEveryLoop(int threads) {
    omp_set_num_threads(threads);
    every_loop_forks = true;
  }
  ThreadsAtEveryLoop(const ThreadsAtEveryLoop&) = delete;
  ThreadsAtEveryLoop& operator=(const ThreadsAtEveryLoop&) = delete;
  ~ThreadsAtEveryLoop() {
    omp_set_num_threads(before_);
    every_loop_forks = forked_;
  }

 private:
  const int before_ = omp_get_max_threads();
  const bool forked_ = every_loop_forks;
};

// Cases are small: threads only cost time, except under the sanitizer that looks for their races.
inline const bool kThreads =
    (omp_set_num_threads(kSanitizesThreads ? 2 : 1), every_loop_forks = kSanitizesThreads);

// A path of this process alone: tests run beside each other.
inline std::string passing_path(const std::string& name) {
  return testing::TempDir() + "kvlab_" + std::to_string(getpid()) + "_" + name;
}

// Every entry with its defaults, and once more for each of its parameters' other values.
inline std::vector<std::string> stage_forms(const Entry& entry) {
  std::vector<std::string> forms{std::string(entry.name)};
  for (const Parameter& p : entry.parameters) {
    for (const std::string& value : p.trial_values()) {
      forms.push_back(std::string(entry.name) + "(" + std::string(p.name) + "=" + value + ")");
    }
  }
  return forms;
}

// The same of a codec, and codecs whose sides group, buffer and rotate rows each in its own way.
inline std::vector<std::string> codec_forms(const CodecEntry& entry) {
  std::vector<std::string> forms = stage_forms(entry);
  if (entry.name == "split")
    forms.insert(forms.end(), {"split(k=kivi(bits=2),v=turbo(bits=3))", "split(k=turbo,v=kivi(residual=0))",
                               "split(k=kivi(residual=0),v=kivi(group=24,residual=0,v_axis=channel))",
                               "split(k=nvfp4,v=mxfp4(rotate=hadamard))",
                               "split(k=q4_0(residual=40,first=5),v=token(bits=3),k_mean=removed)"});
  return forms;
}

// A retention evicts at test lengths only if all its budgets are small at once, so each is tested with every
// number at its first trial value; and once more for each other choice that it has.
inline std::vector<std::string> small_forms(const Entry& entry) {
  std::string numbers;
  std::vector<std::string> choices{""};
  for (const Parameter& p : entry.parameters) {
    const std::vector<std::string> values = p.trial_values();
    if (p.kind == Parameter::Kind::kChoice) {
      for (const std::string& value : values) choices.push_back(std::string(p.name) + "=" + value);
    } else if (!values.empty()) {
      numbers += (numbers.empty() ? "" : ",") + std::string(p.name) + "=" + values.front();
    }
  }
  std::vector<std::string> forms;
  for (const std::string& choice : choices) {
    const std::string all = numbers + (numbers.empty() || choice.empty() ? "" : ",") + choice;
    forms.push_back(std::string(entry.name) + (all.empty() ? "" : "(" + all + ")"));
  }
  return forms;
}

inline bool is_wanted(bool plain_placement, bool plain_codec, const CodecEntry& c, const RetentionEntry& r,
                      bool plain_retention) {
  const bool simple = c.name == "f32" || c.name == "q8_0";
  if (!plain_retention) return plain_placement && (plain_codec ? simple : c.name == "token");
  if (plain_placement && plain_codec) return true;
  const bool typical = (c.name == "f32" || c.name == "kivi") && (r.name == "full" || r.name == "ring");
  return plain_codec ? typical : plain_placement && r.name == "full";
}

// A selection meets one other stage at a time, in every form of that, and pages of codes as well.
inline bool meets_selection(const std::string& placement, const std::string& codec,
                            const std::string& retention) {
  const int others = (placement != "contiguous") + (codec != "f32") + (retention != "full");
  return others <= 1 || (placement == "paged" && retention == "full" && (codec == "q8_0" || codec == "f16"));
}

// Every placement with every codec and every retention; each with its parameters' trial values only against
// the few partners that it can meet differently: codecs of single rows and of groups, retentions that append
// and that overwrite.
inline std::vector<Spec> all_specs() {
  std::vector<Spec> specs;
  for (const auto* p : kPlacements)
    for (const std::string& placement : stage_forms(*p))
      for (const auto* c : kCodecs)
        for (const std::string& codec : codec_forms(*c))
          for (const auto* r : kRetentions) {
            const std::vector<std::string> forms = small_forms(*r);
            for (const std::string& form : forms) {
              if (is_wanted(placement == p->name, codec == c->name, *c, *r, form == forms.front()))
                specs.push_back(parse_spec(placement + "/" + codec + "/" + form));
              for (const auto* s : kSelections)
                if (!s->reads_all() && meets_selection(placement, codec, form))
                  specs.push_back(
                      parse_spec(placement + "/" + codec + "/" + form + "/" + small_forms(*s).front()));
            }
          }
  // Groups of rows, newest and first ones raw, before RoPE.
  for (const char* codec : {"kivi(bits=2)", "kivi(bits=4,residual=0)", "token(bits=2,residual=16,first=3)"})
    for (const char* placement : {"contiguous/", "paged/"})
      specs.push_back(parse_spec(placement + std::string(codec) + "/full(positions=cache)"));
  // Raw sinks before a window of codes.
  for (const char* ring : {"ring(window=24,sinks=4)", "ring(window=24,sinks=3,positions=cache)"})
    specs.push_back(parse_spec(std::string("paged/q4_0(first=3)/") + ring));
  // Whole groups that leave a window.
  for (const char* grouped :
       {"paged(block=8)/kivi(bits=2,group=8,residual=16)/ring(window=47)",
        "contiguous/kivi(bits=4,residual=0,first=4)/ring(window=100,sinks=4,positions=cache)",
        "segmented/nvfp4(residual=10)/ring(window=33,sinks=2)", "concat/kivi/ring(window=191)",
        "paged(block=8)/split(k=kivi(group=8,residual=0),v=q4_0)/ring(window=30,sinks=8)"})
    specs.push_back(parse_spec(grouped));
  return specs;
}

// A sanitizer takes ten times as long: under it every two stages that can meet do so once.
inline constexpr bool kPairsAreEnough = kSanitizesAddresses || kSanitizesThreads;

// Those of `specs` that have two stages together which none before them has; the ones with the fewest defaults come first,
// which have the most of such.
inline std::vector<Spec> every_pair_of_stages(std::vector<Spec> specs) {
  constexpr Stage Spec::*kStages[] = {&Spec::placement, &Spec::codec, &Spec::retention, &Spec::selection};
  const auto defaults = [&](const Spec& spec) {
    return std::count_if(std::begin(kStages), std::end(kStages),
                         [&](auto stage) { return spec.*stage == default_spec().*stage; });
  };
  std::stable_sort(specs.begin(), specs.end(),
                   [&](const Spec& a, const Spec& b) { return defaults(a) < defaults(b); });
  std::set<std::string> met;
  const auto brings_new = [&](const Spec& spec) {
    bool is_new = false;
    for (size_t a = 0; a < std::size(kStages); ++a) {
      for (size_t b = 0; b < a; ++b) {
        Spec two = default_spec();
        two.*kStages[a] = spec.*kStages[a];
        two.*kStages[b] = spec.*kStages[b];
        is_new |= met.insert(std::to_string(a) + std::to_string(b) + two.print()).second;
      }
    }
    return is_new;
  };
  std::vector<Spec> few;
  std::copy_if(specs.begin(), specs.end(), std::back_inserter(few), brings_new);
  return few;
}

// The product of the registry without what is refused.
inline std::vector<Spec> supported_specs(bool pairs_are_enough = kPairsAreEnough) {
  std::vector<Spec> specs;
  for (const Spec& spec : all_specs()) {
    if (unsupported_reason(spec).empty()) specs.push_back(spec);
  }
  return pairs_are_enough ? every_pair_of_stages(specs) : specs;
}

// Every `of`-th spec, from number `seed` modulo `of` on.
inline std::vector<Spec> sample(const std::vector<Spec>& specs, uint64_t seed, uint64_t of) {
  std::vector<Spec> some;
  for (size_t i = seed % of; i < specs.size(); i += of) some.push_back(specs[i]);
  return some;
}

// A sample of a product where KVLAB_SAMPLE holds SEED/OF, as the gate sets it under sanitizers; else all of it.
inline std::vector<Spec> sampled(const std::vector<Spec>& specs) {
  const char* wanted = std::getenv("KVLAB_SAMPLE");
  if (!wanted) return specs;
  uint64_t seed = 0, of = 0;
  if (std::sscanf(wanted, "%" SCNu64 "/%" SCNu64, &seed, &of) != 2 || of == 0)
    throw std::invalid_argument("KVLAB_SAMPLE is not SEED/OF: " + std::string(wanted));
  const std::vector<Spec> some = sample(specs, seed, of);
  std::printf("sample %s: %zu of %zu specs\n", wanted, some.size(), specs.size());
  return some;
}

// The name of a spec's case.
inline std::string test_name(const testing::TestParamInfo<Spec>& info) {
  std::string name;
  for (const char c : info.param.print()) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

// n tokens of one layer: q [q_heads, n, head_dim], k and v [kv_heads, n, head_dim].
struct Tokens {
  int64_t n;
  std::vector<float> q, k, v;
};

inline Tokens make_tokens(const CacheShape& shape, int64_t n, uint64_t seed) {
  const int64_t q = shape.q_heads * n * shape.head_dim, k = shape.kv_heads * n * shape.head_dim;
  return {n, test::gaussian(q, 3 * seed), test::gaussian(k, 3 * seed + 1), test::gaussian(k, 3 * seed + 2)};
}

// Tokens [first, first + n) of `all`, in the same layouts.
inline Tokens slice(const CacheShape& shape, const Tokens& all, int64_t first, int64_t n) {
  const auto cut = [&](const std::vector<float>& from, int heads) {
    const int64_t values = n * shape.head_dim;
    std::vector<float> to(static_cast<size_t>(heads * values));
    for (int h = 0; h < heads; ++h)
      std::copy_n(from.begin() + (h * all.n + first) * shape.head_dim, values, to.begin() + h * values);
    return to;
  };
  return {n, cut(all.q, shape.q_heads), cut(all.k, shape.kv_heads), cut(all.v, shape.kv_heads)};
}

inline std::vector<int64_t> ones(int64_t n) { return std::vector<int64_t>(static_cast<size_t>(n), 1); }

inline int64_t held_bytes(const memory::Ledger& ledger) {
  return ledger.payload().current_bytes + ledger.metadata().current_bytes;
}

// One step with tokens [first, first + n) of `all` through a layer of a sequence; the outputs [q_heads, n, head_dim].
inline std::vector<float> step(Cache& cache, SequenceId id, const Tokens& all, int64_t first, int64_t n,
                               int layer = 0) {
  const Tokens part = slice(cache.shape(), all, first, n);
  std::vector<float> out(part.q.size(), NAN);
  const StepInput in{id, n, part.q.data(), part.k.data(), part.v.data(), out.data()};
  cache.step(layer, {&in, 1});
  return out;
}

// Stores tokens [first, first + n) of `all` in layer 0; only the last one attends, since attention of all of them is work that
// grows with the square of n.
inline void fill(Cache& cache, SequenceId id, const Tokens& all, int64_t first, int64_t n) {
  const Tokens part = slice(cache.shape(), all, first, n - 1);
  const StepInput in{.sequence = id, .n = n - 1, .k = part.k.data(), .v = part.v.data()};
  if (n > 1) cache.step(0, {&in, 1});
  step(cache, id, all, first + n - 1, 1);
}

// Steps `tokens` through a layer of a sequence in chunks of the given lengths; the outputs of the last chunk.
inline std::vector<float> drive(Cache& cache, SequenceId id, const Tokens& tokens,
                                std::span<const int64_t> chunks, int layer = 0) {
  std::vector<float> out;
  int64_t first = 0;
  for (const int64_t n : chunks) {
    out = step(cache, id, tokens, first, n, layer);
    first += n;
  }
  return out;
}

// Rows of one head as stored, in slot order: k and v [rows, head_dim].
struct Stored {
  int64_t rows = 0;
  std::vector<float> k, v;
};

inline Stored read_back(Cache& cache, SequenceId id, int layer, int head) {
  Stored stored;
  const int d = cache.shape().head_dim;
  std::vector<float> row(static_cast<size_t>(d));
  for (const Span& span : cache.spans(id, layer, head)) {
    for (int64_t i = 0; i < span.rows; ++i) {
      for (const auto& [side, to] : {std::pair{&span.k, &stored.k}, std::pair{&span.v, &stored.v}}) {
        const int64_t unit = i / side->encoding.group;
        decode_row(side->encoding, d, side->data + unit * side->stride,
                   side->meta ? side->meta + unit * side->meta_stride : nullptr,
                   static_cast<int>(i % side->encoding.group), row.data());
        to->insert(to->end(), row.begin(), row.end());
      }
    }
    stored.rows += span.rows;
  }
  const std::span<const float> mean = cache.removed_mean(id, layer, head);
  for (size_t i = 0; !mean.empty() && i < stored.k.size(); ++i) stored.k[i] += mean[i % mean.size()];
  const Spec& spec = cache.spec(layer);
  const Codec codec = codec_of(spec).make(spec.codec);
  for (const auto& [side, rotation] :
       {std::pair{&stored.k, codec.k_rotation}, std::pair{&stored.v, codec.v_rotation}}) {
    if (rotation != Rotation::kNone) reference::hadamard(*side, d);
    if (rotation == Rotation::kRandom) reference::flip_signs(*side, d);
  }
  return stored;
}

// The rows of those that attention has read last.
inline Stored rows_read(const Cache& cache, SequenceId id, int layer, int head, const Stored& all) {
  Stored some;
  const int d = cache.shape().head_dim;
  for (const int64_t slot : cache.read_slots(id, layer, head)) {
    for (const auto& [from, to] : {std::pair{&all.k, &some.k}, std::pair{&all.v, &some.v}})
      to->insert(to->end(), from->begin() + slot * d, from->begin() + (slot + 1) * d);
    ++some.rows;
  }
  return some;
}

// The tolerance of a variant's attention on small inputs: tighter than the declared one.
inline double attention_tolerance(const Spec& spec) {
  const double bound = kernel_error_bound(spec);
  return bound == kInt8AttentionError ? 0.05 : bound > kFloatAttentionError ? 1e-4 : 2e-6;
}

// FP64 attention of one query over what a cache has stored, kept() being its tokens: turned by their places
// in the cache where it does that.
inline reference::HeadResult attend_stored(const Cache& cache, std::span<const float> q, const Stored& stored,
                                           const std::vector<int64_t>& kept) {
  if (!rotates_at_read(cache)) return reference::attend(q, stored.k, stored.v, stored.rows);
  std::vector<int64_t> younger;
  for (const int64_t token : kept)
    younger.push_back(std::count_if(kept.begin(), kept.end(), [&](int64_t other) { return other > token; }));
  const Rope& rope = cache.shape().rope;
  const auto rotation =
      reference::plain_rotation(rope.theta, cache.shape().head_dim, rope.pairs == RopePairs::kHalfSplit);
  const reference::RotationTable rotations(rotation, static_cast<int64_t>(kept.size()));
  return reference::attend_rotated(q, stored.k, stored.v, rotations, younger);
}

// `want`: floats, or doubles of an oracle.
template <class Numbers = std::span<const float>>
double relative_l2(std::span<const float> got, const Numbers& want) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return norm > 0.0 ? std::sqrt(error / norm) : std::sqrt(error);
}

}  // namespace kv::contract
