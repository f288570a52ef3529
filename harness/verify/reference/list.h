// The one list of FP64 policies. A new policy is a file in this folder and a line here.
#pragma once

#include <array>

#include "harness/verify/reference/policy.h"

// X(ring) is kv::reference::policy::ring of ring.cc.
#define KVLAB_ORACLES(X) \
  X(full)                \
  X(ring)                \
  X(h2o)                 \
  X(tova)                \
  X(knorm)               \
  X(random)              \
  X(snapkv)              \
  X(duo)                 \
  X(expected)            \
  X(ada)                 \
  X(pyramid)             \
  X(streaming)           \
  X(observed)            \
  X(keydiff)             \
  X(lagkv)               \
  X(chunkkv)             \
  X(cur)                 \
  // the end of the oracles

namespace kv::reference {

namespace policy {
#define KVLAB_DECLARE(name) extern const Oracle name;
KVLAB_ORACLES(KVLAB_DECLARE)
#undef KVLAB_DECLARE
}  // namespace policy

#define KVLAB_ADDRESS(name) &policy::name,
inline constexpr std::array kOracles{KVLAB_ORACLES(KVLAB_ADDRESS)};
#undef KVLAB_ADDRESS

}  // namespace kv::reference
