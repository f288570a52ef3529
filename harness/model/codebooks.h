// Codebooks of vq (variants/core/codebooks.h): learned from a model's own K and V, and held to the model and the text that they
// are then used with.
#pragma once

#include <cstdint>
#include <span>

#include "harness/model/model.h"
#include "variants/cache/cache.h"
#include "variants/core/codebooks.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::model {

struct Calibration {
  std::span<const int> ids;  // the text's, from its first token on
  int64_t first = 0;         // of the tokens that are read
  int64_t tokens = 0;
  int64_t window = 0;  // that the model reads at a time, each from position 0 on
  int codebooks = 0;   // for every 8 values
  uint64_t seed = 0;
};

// Reads the text with an f32 cache, and learns codebooks from its keys before RoPE and its values: for every 8 values of each
// layer, KV head and side, k-means (Lloyd 1957) of the rows, then of what the nearest words leave. The same bits for any number
// of threads. `model` and `text` of the result are empty. Throws std::invalid_argument for a text that is too short, and for a
// model whose layers do not all keep rows or that has no RoPE.
Codebooks learn_codebooks(const Model& model, const Calibration& calibration);

// `codebooks` codebooks [codebooks] of 256 words from values [n, 8], `stride` floats apart. Word 255 of each is NaN.
void learn_words(std::span<const float> values, int codebooks, uint64_t key, int64_t stride, float* words);

// CRC-32C of a model's projections to K and V, rounded to bf16, so that the arithmetic of its products does not matter.
uint32_t model_checksum(const Model& model);

// Throws std::invalid_argument where a layer of the cache has codebooks of another model.
void check_codebooks(const Model& model, const Cache& cache);
// Throws std::invalid_argument where a spec has codebooks that were learned from a part of this text: from any 64 of its tokens
// in a row.
void check_calibration(const LayerSpecs& specs, std::span<const int> ids);

}  // namespace kv::model
