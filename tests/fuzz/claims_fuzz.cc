// Claim files, and what they compute: figures, expressions, definitions, closed forms. No run is made.
#include "harness/claims/claims.h"
#include "harness/claims/figure_result.h"
#include "harness/claims/quantities.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kv::fuzz::InputFile file(".toml");
  file.write(kv::fuzz::bytes_of(data, size));
  kv::fuzz::parse_or_refuse([&] {
    kv::tables::CountedBytes counted(1 << 16);
    for (const kv::claims::Claim& claim : kv::claims::load_claims(file.path()).claims) {
      for (const kv::claims::Statement& s : claim.statements) kv::claims::check(s, {}, counted);
    }
  });
  return 0;
}
