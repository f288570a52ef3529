// Spec strings: what is read prints as a text that reads the same.
#include "tests/fuzz/input_file.h"
#include "variants/cache/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kv::fuzz::parse_or_refuse([&] {
    const kv::Spec spec = kv::parse_spec(kv::fuzz::bytes_of(data, size));
    if (!(kv::parse_spec(spec.print()) == spec)) throw std::logic_error("prints as another: " + spec.print());
  });
  return 0;
}
