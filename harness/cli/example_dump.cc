#include "harness/cli/example_dump.h"

#include <array>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "harness/io/safetensors.h"
#include "harness/workload/workload.h"

namespace kv::cli {

void write_example_dump(const std::string& path) {
  if (std::filesystem::exists(path))
    throw std::invalid_argument("--example " + path + " already exists; give another name");
  constexpr int64_t kTokens = 256;
  const workload::WorkloadShape shape{.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 64};
  const auto rows = workload::make_synthetic("outliers", shape, /*seed=*/1);
  const auto of_layer = [&](int heads) { return static_cast<size_t>(heads * kTokens * shape.head_dim); };
  const size_t q_size = of_layer(shape.q_heads), kv_size = of_layer(shape.kv_heads);
  std::vector<float> q(2 * q_size), k(2 * kv_size), v(2 * kv_size);
  for (size_t layer = 0; layer < 2; ++layer)
    rows->read(0, static_cast<int>(layer), 0, kTokens, &q[layer * q_size], &k[layer * kv_size],
               &v[layer * kv_size]);
  const std::vector<int64_t> q_shape{2, shape.q_heads, kTokens, shape.head_dim};
  const std::vector<int64_t> kv_shape{2, shape.kv_heads, kTokens, shape.head_dim};
  io::write_safetensors(path, std::array{io::NamedTensor{"q", q_shape, q}, io::NamedTensor{"k", kv_shape, k},
                                         io::NamedTensor{"v", kv_shape, v}});
}

}  // namespace kv::cli
