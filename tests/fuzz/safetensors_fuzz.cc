// Safetensors headers: the input is the header and the data, its length is put before it.
#include "harness/io/safetensors.h"

#include <cstring>

#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kv::fuzz::InputFile file(".safetensors");
  const std::string bytes = kv::fuzz::bytes_of(data, size);
  const size_t end = bytes.find('\n');  // end of the header; without one all is header
  const uint64_t length = std::min(end, size);
  std::string prefix(sizeof length, '\0');
  std::memcpy(prefix.data(), &length, sizeof length);
  file.write(prefix + bytes.substr(0, length) + (end < size ? bytes.substr(end + 1) : ""));
  kv::fuzz::parse_or_refuse([&] { kv::io::SafetensorsFile{file.path()}; });
  return 0;
}
