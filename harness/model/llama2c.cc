// llama2.c's legacy (v0) checkpoint.
//
// The file is seven int32 (dim, hidden_dim, layers, heads, kv heads, vocab size, sequence length) and then
// plain f32 tensors, the layers of one tensor side by side. https://github.com/karpathy/llama2.c,
// `legacy_export` in export.py. Rotary pairs are neighbours, theta is 10000: run.c computes the angles and
// skips the file's table of them, and so does kvlab, once the table has shown that it is that one.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "harness/io/mapped_file.h"
#include "harness/model/weights.h"

static_assert(std::endian::native == std::endian::little, "llama2.c files are read as they lie in memory");

namespace kv::model {
namespace {

constexpr int kHeaderFields = 7;
constexpr size_t kHeaderBytes = kHeaderFields * sizeof(int32_t);

// Larger than any model's, and small enough that no product of a tensor's sides can overflow int64.
constexpr int64_t kMaxSide = 1 << 20;
constexpr int64_t kMaxLayers = 1 << 12;

[[noreturn]] void refuse_file(const std::string& path, const std::string& reason) {
  throw std::invalid_argument("model " + path + ": " + reason + " (expected a llama2.c legacy v0 file)");
}

void check_divides(const std::string& path, const char* what, int whole, const char* by, int part) {
  if (whole % part == 0) return;
  refuse_file(path, std::string(what) + " " + std::to_string(whole) + " is not a multiple of " + by + " " +
                        std::to_string(part));
}

struct Header {
  ModelConfig config;
  bool tied;  // the classifier is the embedding; a negative vocabulary size in the file says that it is not
};

Header read_header(const io::MappedFile& file) {
  if (file.bytes().size() < kHeaderBytes) {
    refuse_file(file.path(), "found " + std::to_string(file.bytes().size()) +
                                 " bytes, expected a header of " + std::to_string(kHeaderBytes));
  }
  std::array<int32_t, kHeaderFields> raw;
  std::memcpy(raw.data(), file.bytes().data(), kHeaderBytes);
  constexpr std::array<const char*, kHeaderFields> names = {"dim",        "hidden_dim", "n_layers", "n_heads",
                                                            "n_kv_heads", "vocab_size", "seq_len"};
  std::array<int, kHeaderFields> field;
  for (size_t i = 0; i < kHeaderFields; ++i) {
    const bool is_vocab = i == 5;
    const int64_t value = is_vocab ? std::abs(int64_t{raw[i]}) : raw[i];
    const int64_t limit = i == 2 ? kMaxLayers : kMaxSide;
    if (value < 1 || value > limit) {
      refuse_file(file.path(), std::string("header field ") + names[i] + " is " + std::to_string(raw[i]) +
                                   ", expected 1 to " + std::to_string(limit));
    }
    field[i] = static_cast<int>(value);
  }
  ModelConfig c = {field[0], field[1], field[2], field[3], field[4], field[5], field[6]};
  c.kinds.resize(static_cast<size_t>(c.layers));
  check_divides(file.path(), "dim", c.dim, "n_heads", c.q_heads);
  check_divides(file.path(), "n_heads", c.q_heads, "n_kv_heads", c.kv_heads);
  check_divides(file.path(), "head dimension", c.head_dim(), "a rotary pair's", 2);
  return {c, raw[5] > 0};
}

// The tensors in the order of the file.
enum Tensor {
  kEmbedding,
  kAttentionNorm,
  kWq,
  kWk,
  kWv,
  kWo,
  kFfnNorm,
  kGate,
  kDown,
  kUp,
  kFinalNorm,
  kCos,
  kSin,
  kClassifier,
  kTensors
};

struct Shape {
  int64_t rows, cols;
};

std::array<Shape, kTensors> shapes(const Header& header) {
  const ModelConfig& c = header.config;
  const int64_t dim = c.dim, hidden = c.hidden_dim, layers = c.layers, pairs = c.head_dim() / 2;
  const int64_t kv_dim = int64_t{c.kv_heads} * c.head_dim();
  return {{
      {c.vocab_size, dim},
      {layers, dim},
      {layers * dim, dim},
      {layers * kv_dim, dim},
      {layers * kv_dim, dim},
      {layers * dim, dim},
      {layers, dim},
      {layers * hidden, dim},
      {layers * dim, hidden},
      {layers * hidden, dim},
      {1, dim},
      {c.max_tokens, pairs},
      {c.max_tokens, pairs},
      {header.tied ? 0 : c.vocab_size, dim},
  }};
}

Header checked_header(const io::MappedFile& file) {
  const Header header = read_header(file);
  int64_t values = 0;
  for (const Shape& shape : shapes(header)) values += shape.rows * shape.cols;
  const int64_t expected = static_cast<int64_t>(kHeaderBytes) + values * static_cast<int64_t>(sizeof(float));
  const int64_t found = static_cast<int64_t>(file.bytes().size());
  if (found != expected) {
    refuse_file(file.path(),
                "its header makes " + std::to_string(expected) + " bytes, found " + std::to_string(found));
  }
  return header;
}

using Tensors = std::array<WeightMatrix, kTensors>;

Tensors find_tensors(const io::MappedFile& file, const Header& header) {
  Tensors tensors;
  const std::byte* next = file.bytes().data() + kHeaderBytes;
  const auto all = shapes(header);
  for (size_t i = 0; i < kTensors; ++i) {
    tensors[i] = {next, WeightMatrix::Type::kF32, all[i].rows, all[i].cols};
    next += tensors[i].bytes();
  }
  return tensors;
}

// Another theta's table would show most in the last row.
void check_rotary_table(const std::string& path, const Tensors& tensors, const ModelConfig& config) {
  constexpr float kRounding = 1e-2f;  // the error of angles computed in f32, far out
  const size_t pairs = static_cast<size_t>(config.head_dim()) / 2;
  std::vector<float> want(2 * pairs), found(2 * pairs);
  rope_angles(config.rope, config.head_dim(), config.max_tokens - 1, want.data());
  tensors[kCos].read(config.max_tokens - 1, 1, found.data());
  tensors[kSin].read(config.max_tokens - 1, 1, found.data() + pairs);
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::abs(want[i] - found[i]) <= kRounding) continue;
    refuse_file(path, "its rotary table is not that of theta 10000: the last row has " +
                          std::to_string(found[i]) + " where " + std::to_string(want[i]) + " belongs");
  }
}

// Layer l of a tensor that holds all layers.
WeightMatrix layer_of(const WeightMatrix& all, int l, const ModelConfig& config) {
  const int64_t rows = all.rows() / config.layers;
  return all.part(l * rows, rows);
}

std::vector<float> row_of(const WeightMatrix& matrix, int row) {
  std::vector<float> values(static_cast<size_t>(matrix.cols()));
  matrix.read(row, 1, values.data());
  return values;
}

}  // namespace

ModelWeights load_llama2c(const std::string& path, int64_t memory_bytes) {
  const auto file = std::make_shared<const io::MappedFile>(path);
  const Header header = checked_header(*file);
  check_fits(path, static_cast<int64_t>(file->bytes().size()), memory_bytes);
  const Tensors tensors = find_tensors(*file, header);
  check_rotary_table(path, tensors, header.config);
  ModelWeights weights{.path = path,
                       .config = header.config,
                       .embedding = tensors[kEmbedding],
                       .classifier = tensors[header.tied ? kEmbedding : kClassifier],
                       .final_norm = row_of(tensors[kFinalNorm], 0),
                       .layers = {},
                       .files = file};
  for (int l = 0; l < header.config.layers; ++l) {
    const auto layer = [&](Tensor tensor) { return layer_of(tensors[tensor], l, header.config); };
    weights.layers.push_back({.attention_norm = row_of(tensors[kAttentionNorm], l),
                              .ffn_norm = row_of(tensors[kFfnNorm], l),
                              .wq = layer(kWq),
                              .wk = layer(kWk),
                              .wv = layer(kWv),
                              .wo = layer(kWo),
                              .bq = {},
                              .bk = {},
                              .bv = {},
                              .bo = {},
                              .gate = layer(kGate),
                              .up = layer(kUp),
                              .down = layer(kDown)});
  }
  return weights;
}

}  // namespace kv::model
