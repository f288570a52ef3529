// A model's config.json, as tables and sweeps read it, and as its forward pass does.
#include "harness/config/geometry.h"
#include "harness/model/family.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kv::fuzz::InputFile file(".json");
  file.write(kv::fuzz::bytes_of(data, size));
  kv::fuzz::parse_or_refuse([&] { kv::config::summary(kv::config::read_geometry(file.path())); });
  kv::fuzz::parse_or_refuse([&] { kv::model::read_hugging_face_config(file.path()); });
  return 0;
}
