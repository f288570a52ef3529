#include "kernels/format/mx.h"

namespace kv {

template <class Element>
void MxFormat<Element>::encode(const Encoding&, int head_dim, const float* row, std::byte* data,
                               std::byte* meta) {
  uint16_t codes[kMaxHeadDim];
  for (int first = 0; first < head_dim; first += kMxBlock) {
    const float* block = row + first;
    const uint8_t scale = e8m0_scale(largest_magnitude_bits(kMxBlock, block), Element::kTopExponent);
    const float inverse_scale = e8m0_inverse(scale);
    for (int i = 0; i < kMxBlock; ++i)
      codes[first + i] = scale == kE8m0Nan ? uint16_t{0} : Element::encode(block[i] * inverse_scale);
    store(meta, first / kMxBlock, scale);
  }
  pack_codes(Element::kBits, head_dim, codes, data);
}

template <class Element>
void MxFormat<Element>::decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta,
                               int, int, float* out) {
  uint16_t codes[kMaxHeadDim];
  unpack_codes(Element::kBits, head_dim, data, codes);
  for (int i = 0; i < head_dim; ++i)
    out[i] = Element::decode(codes[i]) * e8m0_to_f32(load<uint8_t>(meta, i / kMxBlock));
}

template struct MxFormat<MxFp8Element<kE4M3>>;
template struct MxFormat<MxFp8Element<kE5M2>>;
template struct MxFormat<MxFp4Element>;

}  // namespace kv
