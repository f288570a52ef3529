#include "kernels/format/encoding.h"

#include "kernels/format/descriptor.h"

namespace kv {

std::string unsupported_reason(const Encoding& encoding, int head_dim) {
  return descriptor_of(encoding.format).unsupported_reason(encoding, head_dim);
}

int64_t unit_data_bytes(const Encoding& encoding, int head_dim) {
  return descriptor_of(encoding.format).data_bytes(encoding, head_dim);
}

int64_t unit_meta_bytes(const Encoding& encoding, int head_dim) {
  return descriptor_of(encoding.format).meta_bytes(encoding, head_dim);
}

std::string encoding_name(const Encoding& encoding) { return descriptor_of(encoding.format).name(encoding); }

std::string encodings_name(const Encoding& k, const Encoding& v) {
  return k == v ? encoding_name(k) : "k:" + encoding_name(k) + ",v:" + encoding_name(v);
}

}  // namespace kv
