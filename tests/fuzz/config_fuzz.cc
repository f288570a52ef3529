// Sweep configs: TOML, its keys, the axes.
#include "harness/experiments/list.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kv::fuzz::InputFile file(".toml");
  file.write(kv::fuzz::bytes_of(data, size));
  kv::fuzz::parse_or_refuse([&] { kv::experiments::load_config(file.path(), {}); });
  return 0;
}
