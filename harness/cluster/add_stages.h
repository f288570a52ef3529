// A folder that an earlier version wrote, as this one writes it.
#pragma once

#include <filesystem>

namespace kv::cluster {

// Gives cells.csv the columns that say what a variant is made of, from `variant` and the geometry's columns, and, where a
// run measures some of its model's layers, model_layers and model_bytes, from its config; gives cells the verdicts that their
// experiment gives over all of them; writes columns.json anew. No other value changes. False if cells.csv was so already. Throws
// std::invalid_argument for a folder whose cells.csv cannot be read or has a torn last line.
bool add_stages(const std::filesystem::path& folder);

}  // namespace kv::cluster
