// Peers: other engines' attention, measured by decode beside kvlab's own caches. A peer is one file of this folder,
// NAME.py; its head lists its dependencies and formats (README.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kv::peers {

struct Format {
  std::string peer;      // "ggml"
  std::string name;      // "q8_0"
  std::string stored;    // kvlab's codec of the same bits: its stored rows are the FP64 reference for outputs
  std::string versus;    // kvlab's codec to compare times with; `stored` unless the file names another
  double tolerance = 0;  // largest relative L2 difference from that FP64

  std::string text() const { return peer + "/" + name; }  // the name in results
};

// All peers' formats, sorted by peer, then in the file's order. Throws std::invalid_argument for a file with a wrong head.
std::vector<Format> formats();
// Throws std::out_of_range for a name that is not in formats().
Format format_named(std::string_view text);

// Empty if the peer is installed, else the command that installs it.
std::string why_absent(const std::string& peer);

}  // namespace kv::peers
