// Every codec keeps the interval that it states; one that is worse does not, nor one that is too good.
#include "harness/verify/rows.h"

#include "tests/variants/contract.h"

namespace kv {
namespace {

TEST(CodecCheck, EveryCodecIsAsGoodAsItStates) {
  int checked = 0;
  for (const auto* entry : kCodecs) {
    for (const std::string& form : contract::stage_forms(*entry)) {
      const Spec spec = parse_spec("contiguous/" + form);
      const Codec codec = entry->make(spec.codec);
      for (const int head_dim : {32, 64, 96, 128, 512}) {
        if (!unsupported_reason(spec, head_dim).empty()) continue;
        EXPECT_EQ(verify::codec_failure(codec, head_dim), "") << form << ", head_dim " << head_dim;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 50);
}

TEST(CodecCheck, AnIntervalThatIsNotKeptIsFound) {
  Codec codec = codec_of(parse_spec("contiguous/f16")).make({});
  const Interval kept = codec.k_error;
  codec.k_error = {0.0, kept.low};  // worse than it states
  EXPECT_EQ(verify::codec_failure(codec, 64).find("the codec's error of K is 0.0002"), 0u);
  codec.k_error = kept;
  codec.v_error = {kept.high, 1.0};  // too good
  EXPECT_EQ(verify::codec_failure(codec, 64).find("the codec's error of V is 0.0002"), 0u);
  EXPECT_EQ(verify::codec_failure(codec, 16), "") << "nothing is stated of so few elements";
}

}  // namespace
}  // namespace kv
