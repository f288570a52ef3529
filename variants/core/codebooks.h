// Codebooks that were learned from a model's K and V (kernels/format/vq.h), and their file, which `kvlab calibrate` writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kv {

struct Codebooks {
  std::string model, text;  // that they were learned from, as they were named
  uint32_t model_crc = 0,
           text_crc = 0;    // of its projections to K and V, and of the text's token ids, all of them
  int64_t first_token = 0;  // of the text
  int64_t window = 0;       // tokens that the model read at a time
  uint64_t seed = 0;
  std::vector<int32_t> ids;  // the tokens that it read, window after window
  // Keys are those before RoPE.
  int layers = 0, kv_heads = 0, head_dim = 0, codebooks = 0;
  std::vector<float> words;  // [layers, kv_heads, 2 (K, V), codebooks, head_dim / 8, 256, 8]

  // Those of one head's K or V, [codebooks, head_dim / 8, 256, 8].
  int64_t table_at(int layer, int kv_head, bool is_v) const;
  // For messages: "smollm2-135m: 30 layers of 3 heads of 64".
  std::string of() const;
};

// Throws DiskError as write_file() does (snapshot.h).
void write_codebooks(const std::string& path, const Codebooks& books);
// The same codebooks as long as somebody holds them and the file stays as it is. Throws std::invalid_argument where the file
// cannot be opened, is damaged, or holds something else. From any thread.
std::shared_ptr<const Codebooks> read_codebooks(const std::string& path);

// Those of one head, in the place of its units' metadata, and read alone; null where codebooks are not learned.
struct HeadTables {
  std::byte *k = nullptr, *v = nullptr;
};

}  // namespace kv
