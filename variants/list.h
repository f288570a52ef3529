// The one table of variants: a new variant is one new file and one line here.
//
// A line names the entry that its file defines: X(ring) is kv::retention::ring of variants/retention/ring.cc.
// The first of each kind is what a spec string leaves out.
#pragma once

#include <array>

#include "variants/core/entry.h"

#define KVLAB_PLACEMENTS(X) \
  X(contiguous)             \
  X(concat)                 \
  X(doubling)               \
  X(segmented)              \
  X(paged)                  \
  X(tiered)                 \
  // the end of the placements

#define KVLAB_CODECS(X) \
  X(f32)                \
  X(f16)                \
  X(bf16)               \
  X(fp8)                \
  X(q8_0)               \
  X(q4_0)               \
  X(q4_1)               \
  X(q5_0)               \
  X(q5_1)               \
  X(q6_0)               \
  X(iq4_nl)             \
  X(token)              \
  X(kivi)               \
  X(split)              \
  X(mxfp8)              \
  X(mxfp4)              \
  X(nvfp4)              \
  X(turbo)              \
  X(vq)                 \
  X(python_codec)       \
  // the end of the codecs

#define KVLAB_RETENTIONS(X) \
  X(full)                   \
  X(ring)                   \
  X(h2o)                    \
  X(tova)                   \
  X(knorm)                  \
  X(random)                 \
  X(snapkv)                 \
  X(duo)                    \
  X(expected)               \
  X(ada)                    \
  X(pyramid)                \
  X(streaming)              \
  X(observed)               \
  X(keydiff)                \
  X(lagkv)                  \
  X(chunkkv)                \
  X(cur)                    \
  X(python)                 \
  // the end of the retentions

#define KVLAB_SELECTIONS(X) \
  X(all)                    \
  X(quest)                  \
  X(topk)                   \
  // the end of the selections

namespace kv {

#define KVLAB_DECLARE(name) extern const Declared name;
#define KVLAB_ADDRESS(name) &name,

namespace placement {
using Declared = PlacementEntry;
KVLAB_PLACEMENTS(KVLAB_DECLARE)
inline constexpr std::array kAll{KVLAB_PLACEMENTS(KVLAB_ADDRESS)};
}  // namespace placement

namespace codec {
using Declared = CodecEntry;
KVLAB_CODECS(KVLAB_DECLARE)
inline constexpr std::array kAll{KVLAB_CODECS(KVLAB_ADDRESS)};
}  // namespace codec

namespace retention {
using Declared = RetentionEntry;
KVLAB_RETENTIONS(KVLAB_DECLARE)
inline constexpr std::array kAll{KVLAB_RETENTIONS(KVLAB_ADDRESS)};
}  // namespace retention

namespace selection {
using Declared = SelectionEntry;
KVLAB_SELECTIONS(KVLAB_DECLARE)
inline constexpr std::array kAll{KVLAB_SELECTIONS(KVLAB_ADDRESS)};
}  // namespace selection

#undef KVLAB_DECLARE
#undef KVLAB_ADDRESS

inline constexpr const auto& kPlacements = placement::kAll;
inline constexpr const auto& kCodecs = codec::kAll;
inline constexpr const auto& kRetentions = retention::kAll;
inline constexpr const auto& kSelections = selection::kAll;

}  // namespace kv
