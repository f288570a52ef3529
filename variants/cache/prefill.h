// prefill=full: the queries of a prompt, a sequence's first step of several tokens, read K and V as they came, before any
// encoding, as in the code of KIVI and of others who encode a prompt once it has been read. Steps that follow read what
// is stored.
//
// The default is prefill=stored: answers then do not depend on whether a prompt came whole, in chunks or behind a shared
// prefix, and every output can be compared with FP64 over the stored rows.
#pragma once

#include "variants/cache/spec.h"

namespace kv {

inline bool prefills_full(const Spec& spec) {
  const auto value = spec.codec.values.find("prefill");
  return value != spec.codec.values.end() && value->second == "full";
}

}  // namespace kv
