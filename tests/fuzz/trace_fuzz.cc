// Request traces: Mooncake's JSON lines where the input begins with '{', else Azure's CSV.
#include "harness/config/request_lengths.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kv::fuzz::InputFile lines(".jsonl"), table(".csv");
  const kv::fuzz::InputFile& file = size > 0 && data[0] == '{' ? lines : table;
  file.write(kv::fuzz::bytes_of(data, size));
  kv::fuzz::parse_or_refuse([&] { kv::config::draw_lengths("trace(" + file.path() + ")", 4, 1); });
  return 0;
}
