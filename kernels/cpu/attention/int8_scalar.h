// Private to kernels/.
#pragma once

#include "kernels/cpu/attention/attention_task.h"

namespace kv::cpu {

// A task with Arithmetic::kInt8, of finite queries and scales, those of q8_0 not below 0: fills its state, sum and weights.
void run_task_int8(const AttentionTask& task, int head_dim);

}  // namespace kv::cpu
