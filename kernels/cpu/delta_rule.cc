// Rows of the state are contiguous, so that every inner loop runs along value_dim, which the compiler vectorises.
// The state is read twice and written once a token.
#include "kernels/delta_rule.h"

#include <algorithm>

namespace kv {

void delta_rule_step(const DeltaToken& t, int key_dim, int value_dim, float* state, float* scratch) {
  std::fill_n(scratch, value_dim, 0.0f);
  for (int i = 0; i < key_dim; ++i) {
    const float* row = state + static_cast<long>(i) * value_dim;
    const float weight = t.alpha * t.k[i];
    for (int j = 0; j < value_dim; ++j) scratch[j] += weight * row[j];
  }
  for (int j = 0; j < value_dim; ++j) scratch[j] = t.beta * (t.v[j] - scratch[j]);
  if (t.out) std::fill_n(t.out, value_dim, 0.0f);
  for (int i = 0; i < key_dim; ++i) {
    float* row = state + static_cast<long>(i) * value_dim;
    for (int j = 0; j < value_dim; ++j) row[j] = t.alpha * row[j] + t.k[i] * scratch[j];
    if (!t.out) continue;
    for (int j = 0; j < value_dim; ++j) t.out[j] += t.q[i] * row[j];
  }
}

void delta_rule_read(const float* q, int key_dim, int value_dim, const float* state, float* out) {
  std::fill_n(out, value_dim, 0.0f);
  for (int i = 0; i < key_dim; ++i) {
    const float* row = state + static_cast<long>(i) * value_dim;
    for (int j = 0; j < value_dim; ++j) out[j] += q[i] * row[j];
  }
}

}  // namespace kv
