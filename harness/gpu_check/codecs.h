// Every codec with fast kernels, KIVI's with groups of 32.
#pragma once

#include <string>
#include <vector>

#include "harness/gpu_check/paged_head.h"

namespace kv::gpu_check {

struct CodecChoice {
  std::string name;
  CodecPair codec;
};

const std::vector<CodecChoice>& codecs();
const CodecPair& codec_named(const std::string& name);

}  // namespace kv::gpu_check
