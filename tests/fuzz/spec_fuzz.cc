// Spec strings, of one cache and of a model's layers: what is read prints as a text that reads the same.
#include "tests/fuzz/input_file.h"
#include "variants/model_cache/layer_specs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kv::fuzz::parse_or_refuse([&] {
    const kv::Spec spec = kv::parse_spec(kv::fuzz::bytes_of(data, size));
    if (!(kv::parse_spec(spec.print()) == spec)) throw std::logic_error("prints as another: " + spec.print());
  });
  kv::fuzz::parse_or_refuse([&] {
    const kv::LayerSpecs specs = kv::parse_layer_specs(kv::fuzz::bytes_of(data, size));
    if (!(kv::parse_layer_specs(specs.print()) == specs))
      throw std::logic_error("prints as another: " + specs.print());
  });
  return 0;
}
