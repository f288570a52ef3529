#include "kernels/cpu/attention/tile.h"

#include "kernels/cpu/encode/decode_levels.h"
#include "kernels/cpu/isa.h"
#include "kernels/encode.h"
#include "kernels/format/descriptor.h"

namespace kv::cpu {

void decode_tile_rows(const TileSide& side, const Encoding& encoding, int head_dim, int first, int count,
                      float* out) {
  if (descriptor_of(encoding.format).elements == Elements::kLevels && !isa_is_scalar())
    return decode_level_rows(encoding, head_dim, side.row + first, side.meta + first, count, out);
  for (int i = first; i < first + count;) {
    // Rows of one unit are decoded together: a kChannel unit's scales serve them all.
    int same = 1;
    if (encoding.group > 1) {
      while (i + same < first + count && side.meta[i + same] == side.meta[i]) ++same;
    }
    const Side unit{.data = side.row[i], .meta = side.meta[i], .encoding = encoding};
    decode_rows(unit, head_dim, 0, same, out);
    out += int64_t{same} * head_dim;
    i += same;
  }
}

}  // namespace kv::cpu
