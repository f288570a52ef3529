// llama2.c's tokenizer.bin: the first two bytes are the size of the model's vocabulary.
#include "harness/model/model.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kv::fuzz::InputFile file(".bin");
  if (size < 2) return 0;
  const std::string bytes = kv::fuzz::bytes_of(data + 2, size - 2);
  file.write(bytes);
  kv::fuzz::parse_or_refuse([&] {
    const kv::model::Tokenizer tokenizer(file.path(), data[0] + 256 * data[1]);
    tokenizer.decode(tokenizer.encode(bytes));
  });
  return 0;
}
