// `kvlab eval --example`: a dump to try eval with, which shows the layout.
#pragma once

#include <string>

namespace kv::cli {

// Writes q [2, 4, 256, 64], k and v [2, 2, 256, 64] in f32 from the synthetic family "outliers": 1 MB. Throws std::invalid_argument
// if the file exists, std::runtime_error if the disk refuses.
void write_example_dump(const std::string& path);

}  // namespace kv::cli
