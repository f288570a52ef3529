#include "kernels/format/list.h"

#include <array>
#include <stdexcept>

namespace kv {
namespace {

template <class F>
concept IntegerLevels = requires {
  F::kBlocks;
};

template <class F>
constexpr float middle_code_of() {
  if constexpr (IntegerLevels<F>) return F::kBlocks.has_min ? F::kBlocks.middle : 0.0f;
  return 0.0f;
}

template <class F>
constexpr FormatDescriptor describe() {
  return {.format = F::kFormat,
          .elements = F::kElements,
          .scaling = F::kScaling,
          .bits = F::kBits,
          .attention_error = F::kAttentionError,
          .on_gpu = F::kElements != Elements::kLevels,
          .int8_levels = IntegerLevels<F>,
          .middle_code = middle_code_of<F>(),
          .name = F::name,
          .unsupported_reason = F::unsupported_reason,
          .data_bytes = F::data_bytes,
          .meta_bytes = F::meta_bytes,
          .fills_words = F::fills_words,
          .samples = F::samples,
          .encode = F::encode,
          .decode = F::decode};
}

template <class... F>
constexpr std::array<FormatDescriptor, sizeof...(F)> describe_all(FormatList<F...>) {
  return {describe<F>()...};
}

constexpr auto kDescriptors = describe_all(AllFormats());

constexpr bool is_in_order() {
  for (size_t i = 0; i < kDescriptors.size(); ++i) {
    if (static_cast<size_t>(kDescriptors[i].format) != i) return false;
  }
  return true;
}
static_assert(is_in_order(), "list.h has the formats in the order of enum Format");

}  // namespace

std::vector<Encoding> sample_encodings() {
  std::vector<Encoding> all;
  for (const FormatDescriptor& format : kDescriptors) {
    const std::vector<Encoding> samples = format.samples();
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

const FormatDescriptor& descriptor_of(Format format) {
  const auto index = static_cast<size_t>(format);
  if (index >= kDescriptors.size()) {
    throw std::logic_error("there is no format number " + std::to_string(index));
  }
  return kDescriptors[index];
}

}  // namespace kv
