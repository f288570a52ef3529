// Keys that a stranger's file may state although nothing reads them: configs/unread_keys.json has a reason for each.
#pragma once

#include <string>

namespace kv::io {

// True if a key or a tensor of this name changes no logits. `kind` is one of the table's, as "tensors"; `type` is a model_type, for
// which alone some keys mean nothing.
bool changes_nothing(const std::string& kind, const std::string& name, const std::string& type = "");

}  // namespace kv::io
