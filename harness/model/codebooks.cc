#include "harness/model/codebooks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/math/random.h"
#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/weights.h"
#include "kernels/encode.h"
#include "kernels/format/vq.h"
#include "kernels/math.h"
#include "variants/core/checksum.h"
#include "variants/list.h"
#include "variants/model_cache/resolve.h"

namespace kv::model {
namespace {

constexpr int kRounds = 12;             // of k-means
constexpr int64_t kFewestTokens = 512;  // two for a word
constexpr size_t kCommonTokens = 64;    // in a row: the same text

// Rows of one head's K or V, [tokens, head_dim], of each layer and head, K before V.
using HeadRowsOf = std::vector<std::vector<float>>;

// The nearest of 255 words: by |word|^2 / 2 - x word, for all of them side by side, in a third of nearest_word()'s time.
class NearestOf {
 public:
  explicit NearestOf(const float* words) {
    for (size_t at = 0; at < kVqBookFloats; ++at) {
      const float x = words[at];
      columns_[at % kVqValues][at / kVqValues] = x;
      half_squares_[at / kVqValues] += 0.5f * x * x;
    }
  }
  size_t operator()(const float* x) const {
    std::array<float, kVqWords> far = half_squares_;
    for (size_t i = 0; i < kVqValues; ++i) {
      for (size_t word = 0; word < kVqWords; ++word) far[word] -= x[i] * columns_[i][word];
    }
    size_t nearest = 0;
    for (size_t word = 1; word < kVqNanWord; ++word) nearest = far[word] < far[nearest] ? word : nearest;
    return nearest;
  }

 private:
  std::array<std::array<float, kVqWords>, kVqValues> columns_{};
  std::array<float, kVqWords> half_squares_{};
};

// Words become the means of the values that are nearest to them; one that none is nearest to stays.
void k_means(std::span<const float> values, uint64_t key, float* words) {
  const int64_t n = std::ssize(values) / kVqValues;
  for (int word = 0; word < kVqWords; ++word) {
    const int64_t from =
        static_cast<int64_t>(math::random::below(key, static_cast<uint64_t>(word), static_cast<uint64_t>(n)));
    std::copy_n(values.data() + from * kVqValues, kVqValues, words + word * kVqValues);
  }
  for (int round = 0; round < kRounds; ++round) {
    const NearestOf nearest(words);
    std::vector<double> sums(kVqBookFloats);
    std::vector<int64_t> counts(kVqWords);
    for (int64_t i = 0; i < n; ++i) {
      const float* value = values.data() + i * kVqValues;
      const size_t word = nearest(value);
      ++counts[word];
      for (size_t x = 0; x < kVqValues; ++x) sums[word * kVqValues + x] += double{value[x]};
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t count = counts[i / kVqValues];
      if (count > 0) words[i] = static_cast<float>(sums[i] / static_cast<double>(count));
    }
  }
}

void add_rows(Cache& cache, SequenceId id, HeadRowsOf& rows) {
  const CacheShape& s = cache.shape();
  for (int at = 0; at < s.layers * s.kv_heads; ++at) {
    for (const Span& span : cache.spans(id, at / s.kv_heads, at % s.kv_heads)) {
      for (const bool is_v : {false, true}) {
        std::vector<float>& to = rows[static_cast<size_t>(2 * at + is_v)];
        const size_t before = to.size();
        to.resize(before + static_cast<size_t>(span.rows * s.head_dim));
        decode_rows(is_v ? span.v : span.k, s.head_dim, 0, span.rows, to.data() + before);
      }
    }
  }
}

// The rows that the model writes, keys before RoPE.
HeadRowsOf read_rows(const Model& model, const Calibration& text) {
  const ModelConfig& config = model.config();
  HeadRowsOf rows(static_cast<size_t>(2 * config.layers * config.kv_heads));
  for (int64_t first = 0; first < text.tokens; first += text.window) {
    const int64_t n = std::min(text.window, text.tokens - first);
    memory::Ledger ledger;
    const auto cache =
        build_cache(parse_spec("contiguous/f32/full(positions=cache)"), cache_shape(config, 1, n), ledger);
    CachedModel reader(model, *cache, 1);
    reader.prompt(text.ids.subspan(static_cast<size_t>(text.first + first), static_cast<size_t>(n)), n);
    add_rows(*cache, reader.sequences().front(), rows);
  }
  return rows;
}

void check_text(const ModelConfig& config, const Calibration& text) {
  if (text.tokens < kFewestTokens)
    throw std::invalid_argument("codebooks of 256 words need " + std::to_string(kFewestTokens) +
                                " tokens or more, not " + std::to_string(text.tokens));
  if (text.first + text.tokens > std::ssize(text.ids))
    throw std::invalid_argument("the text has " + std::to_string(text.ids.size()) + " tokens, not the " +
                                std::to_string(text.first + text.tokens) + " to read");
  if (text.window > config.max_tokens)
    throw std::invalid_argument("the model reads " + std::to_string(config.max_tokens) +
                                " tokens at a time, not " + std::to_string(text.window));
  for (const ModelLayer& layer : config.kinds) {
    if (!keeps_rows(layer) || layer.shares >= 0)
      throw std::invalid_argument("codebooks need a model whose layers all keep K and V of their own");
  }
}

// The specs' codebooks, of K and of V.
std::vector<std::shared_ptr<const Codebooks>> codebooks_of(const Spec& spec) {
  const Codec codec = codec_of(spec).make(spec.codec);
  std::vector<std::shared_ptr<const Codebooks>> all;
  for (const auto& books : {codec.k_books, codec.v_books}) {
    if (books) all.push_back(books);
  }
  return all;
}

using Run = std::vector<int32_t>;

Run run_at(std::span<const int32_t> ids, size_t at) {
  const auto run = ids.subspan(at, kCommonTokens);
  return {run.begin(), run.end()};
}

}  // namespace

void learn_words(std::span<const float> values, int codebooks, uint64_t key, int64_t stride, float* words) {
  std::vector<float> left(values.begin(), values.end());
  for (int book = 0; book < codebooks; ++book, words += stride) {
    k_means(left, math::random::key({key, static_cast<uint64_t>(book)}), words);
    for (size_t i = 0; i < left.size(); i += kVqValues) {
      const float* word = words + nearest_word(words, left.data() + i) * kVqValues;
      for (size_t x = 0; x < kVqValues; ++x) left[i + x] -= word[x];
    }
    std::fill_n(words + kVqNanWord * kVqValues, kVqValues, std::numeric_limits<float>::quiet_NaN());
  }
}

Codebooks learn_codebooks(const Model& model, const Calibration& text) {
  const ModelConfig& config = model.config();
  check_text(config, text);
  const HeadRowsOf rows = read_rows(model, text);
  const std::vector<int32_t> ids(text.ids.begin(), text.ids.end());
  const auto read = text.ids.subspan(static_cast<size_t>(text.first), static_cast<size_t>(text.tokens));
  Codebooks books;
  books.model_crc = model_checksum(model);
  books.text_crc = extend_crc32c(0, reinterpret_cast<const std::byte*>(ids.data()), 4 * ids.size());
  books.first_token = text.first;
  books.window = text.window;
  books.seed = text.seed;
  books.ids.assign(read.begin(), read.end());
  books.layers = config.layers;
  books.kv_heads = config.kv_heads;
  books.head_dim = config.head_dim();
  books.codebooks = text.codebooks;
  const int64_t groups = books.head_dim / kVqValues, stride = groups * kVqBookFloats,
                table = vq_table_floats(books.codebooks, books.head_dim);
  books.words.resize(rows.size() * static_cast<size_t>(table));
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t at = 0; at < std::ssize(rows) * groups; ++at) {
    const std::vector<float>& from = rows[static_cast<size_t>(at / groups)];
    std::vector<float> values;
    for (int64_t i = at % groups * kVqValues; i < std::ssize(from); i += books.head_dim)
      values.insert(values.end(), from.begin() + i, from.begin() + i + kVqValues);
    learn_words(values, books.codebooks, math::random::key({text.seed, static_cast<uint64_t>(at)}), stride,
                books.words.data() + at / groups * table + at % groups * kVqBookFloats);
  }
  return books;
}

uint32_t model_checksum(const Model& model) {
  uint32_t crc = model.config().to_halves ? 1 : 0;  // other words than in the weights' own order
  for (const LayerWeights& layer : model.weights().layers) {
    for (const WeightMatrix* matrix : {&layer.wk, &layer.wv}) {
      std::vector<float> values(static_cast<size_t>(matrix->rows() * matrix->cols()));
      if (values.empty()) continue;
      matrix->read(0, matrix->rows(), values.data());
      std::vector<uint16_t> rounded(values.size());
      std::transform(values.begin(), values.end(), rounded.begin(), f32_to_bf16);
      crc = extend_crc32c(crc, reinterpret_cast<const std::byte*>(rounded.data()),
                          rounded.size() * sizeof(uint16_t));
    }
  }
  return crc;
}

void check_codebooks(const Model& model, const Cache& cache) {
  for (int layer = 0; layer < model.config().layers; ++layer) {
    if (!cache.keeps_rows(layer)) continue;
    for (const auto& books : codebooks_of(cache.spec(layer))) {
      if (books->model_crc == model_checksum(model)) continue;
      throw std::invalid_argument(
          "the codebooks of '" + cache.spec(layer).print() + "' were learned from " + books->model +
          ", whose weights are not this model's; `kvlab calibrate` learns codebooks for it");
    }
  }
}

void check_calibration(const LayerSpecs& specs, std::span<const int> ids) {
  std::vector<std::shared_ptr<const Codebooks>> all;
  specs.any([&](const Spec& spec) {
    for (auto& books : codebooks_of(spec)) all.push_back(std::move(books));
    return false;
  });
  if (all.empty()) return;
  const std::vector<int32_t> text(ids.begin(), ids.end());
  std::set<Run> runs;
  for (size_t at = 0; at + kCommonTokens <= text.size(); ++at) runs.insert(run_at(text, at));
  for (const auto& books : all) {
    for (size_t at = 0; at + kCommonTokens <= books->ids.size(); ++at) {
      if (!runs.contains(run_at(books->ids, at))) continue;
      throw std::invalid_argument(
          "'" + specs.print() + "' has codebooks that were learned from this text: its tokens from " +
          std::to_string(books->first_token + static_cast<int64_t>(at)) + " on are among those to read. " +
          "Calibrate with others (--from), or read others (workload.text_from)");
    }
  }
}

}  // namespace kv::model
