// vq: additive codebooks (CommVQ, Li et al. 2025, arXiv:2506.18879; residual vector quantisation, Chen, Guan and Wang 2010):
// every 8 values are the sum of `bits` words of 256 each, found by table.
//
// With file=PATH the codebooks are those that `kvlab calibrate` has learned from a model's K and V over a text: one for each 8
// values of each layer, head and side. CommVQ's commute with RoPE, so that keys are decoded once for all positions; here keys
// are those before RoPE, stored as such and rotated when they are read (positions=cache), which is as exact and rotates every
// row at each read. There is no scale: a row is 1 or 2 bits per value, and the codebooks, kept once a model, are not counted.
//
// Without a file all have the same codebooks, made for N(0,1): signs of the mean magnitude, then those of what it leaves. The
// mean square errors are 1 - 2 / pi and 0.1305.
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "kernels/format/vq.h"
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {
namespace {

constexpr double kErrorOfSigns[kVqMostBits] = {0.36338, 0.1305};

Codec make_vq(const Stage& stage) {
  const int64_t bits = stage.integer("bits");
  const std::string& file = stage.text("file");
  const Encoding side{.format = Format::kVq, .bits = static_cast<uint8_t>(bits), .second = !file.empty()};
  const double error = std::sqrt(kErrorOfSigns[bits - 1]);
  Codec codec{.k = side,
              .v = side,
              .residual = residual_rows(stage),
              .first = first_rows(stage),
              .read_copy = reads_copy(stage),
              .k_error = {0.93 * error, 1.07 * error},
              .v_error = {0.93 * error, 1.07 * error}};
  if (file.empty()) return codec;
  if (!std::filesystem::exists(file)) {
    codec.k_absent = codec.v_absent = file;
    return codec;
  }
  codec.k_books = codec.v_books = read_codebooks(file);
  if (codec.k_books->codebooks < bits)
    throw std::invalid_argument("'" + file + "' has " + std::to_string(codec.k_books->codebooks) +
                                " codebook for every 8 values: bits=" + std::to_string(bits) +
                                " needs as many");
  return codec;
}

}  // namespace

const CodecEntry vq{
    {.name = "vq",
     .help = "8 values by the sum of words from learned codebooks of 256 (kvlab calibrate), no scales",
     .source = "CommVQ (arXiv:2506.18879); its codebooks commute with RoPE, here keys are stored before it",
     .parameters = {Parameter::integer("bits", "2", 1, kVqMostBits, {1}, "bits per value"),
                    Parameter::text("file", "", "codebooks of the model; none: those for N(0,1)"),
                    residual_parameter("0"), first_parameter(), read_parameter(), prefill_parameter()}},
    {.make = make_vq}};

}  // namespace kv::codec
