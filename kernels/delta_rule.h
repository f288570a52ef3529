// The recurrence of gated DeltaNet layers (Yang et al. 2024, arXiv:2412.06464), as Qwen3-Next has it: in place of rows
// of K and V a head keeps one matrix S, which every token decays and corrects.
//
//   S = alpha S + beta k (v - (alpha S)^T k)^T        out = S^T q
#pragma once

namespace kv {

// One token of one head, in f32.
struct DeltaToken {
  const float* q;  // [key_dim], scaled by the caller
  const float* k;  // [key_dim], of length 1 where the layer normalises it: the caller's work
  const float* v;  // [value_dim]
  float alpha;     // decay, 0 to 1
  float beta;      // step size, 0 to 1
  float* out;      // [value_dim], or null where it is not wanted
};

// Updates `state` [key_dim, value_dim] by one token. `scratch`: [value_dim].
void delta_rule_step(const DeltaToken& token, int key_dim, int value_dim, float* state, float* scratch);
// out = S^T q alone.
void delta_rule_read(const float* q, int key_dim, int value_dim, const float* state, float* out);

}  // namespace kv
