// turbo: TurboQuant (Zandieh et al. 2025, arXiv:2504.19874): rows are rotated at random and become near-normal, so that
// levels made for the normal distribution fit any model's.
//
// The rotation is random signs and the Hadamard transform (kernels/hadamard.h), as in vLLM, in place of the paper's
// random orthogonal matrix. Over N(0,1) the mean square error is that of Lloyd's and Max's levels, 0.36, 0.117, 0.0345
// and 0.0095 at 1 to 4 bits. qjl=on spends one of K's bits on the signs of a sketch of the error (kernels/format/turbo.h).
// Scores are then unbiased, where codes alone make them too small by the mean square error; but as a vector the sketch
// leaves pi/2 - 1 of the square of what the codes of one bit less left. V has no inner products to be unbiased in, and
// keeps its bits.
//
// The levels are means of what they stand for, so that a decoded row is too short: its square by the mean square error e.
// norm=on stores the scale that gives it its length. Inner products are then too small by 1 - sqrt(1 - e) in place of e, and
// the mean square error is 2 - 2 sqrt(1 - e): 0.2 % more at 4 bits, 3 % at 2.
#include <cmath>

#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {
namespace {

constexpr double kMeanSquareError[] = {0.36338, 0.11748, 0.034548, 0.009501};

struct SideOfTurbo {
  Encoding encoding;
  Interval error;
};

SideOfTurbo turbo_side(int64_t bits, bool sketch, bool norm) {
  const int64_t codes = bits - sketch;
  const double own = kMeanSquareError[codes - 1], of_codes = norm ? 2 - 2 * std::sqrt(1 - own) : own;
  const double left = sketch ? M_PI / 2 - 1 : 1.0, error = std::sqrt(of_codes * left);
  return {{.format = Format::kTurbo, .bits = static_cast<uint8_t>(codes), .second = sketch, .norm = norm},
          {(norm ? 0.91 : 0.93) * error, 1.07 * error}};
}

Codec make_turbo(const Stage& stage) {
  const int64_t bits = stage.integer("bits");
  const bool norm = stage.text("norm") == "on";
  const SideOfTurbo k = turbo_side(bits, stage.text("qjl") == "on", norm), v = turbo_side(bits, false, norm);
  return {.k = k.encoding,
          .v = v.encoding,
          .residual = residual_rows(stage),
          .first = first_rows(stage),
          .read_copy = reads_copy(stage),
          .k_rotation = Rotation::kRandom,
          .v_rotation = Rotation::kRandom,
          .k_error = k.error,
          .v_error = v.error};
}

}  // namespace

const CodecEntry turbo{
    {.name = "turbo",
     .help = "rotated at random, levels of the normal distribution, one f16 scale per token and head",
     .source = "TurboQuant (arXiv:2504.19874)",
     .parameters = {Parameter::integer("bits", "4", 2, 4, {2, 3}, "bits an element"),
                    Parameter::choice("qjl", {"off", "on"},
                                      "one of K's bits for a sketch of what the others leave"),
                    Parameter::choice("norm", {"off", "on"}, "a decoded row is as long as it came"),
                    residual_parameter("0"), first_parameter(), read_parameter(), prefill_parameter()}},
    {.make = make_turbo}};

}  // namespace kv::codec
