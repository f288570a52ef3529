// Peers: other engines' attention, which decode measures beside kvlab's own caches. A peer is one file of this folder,
// NAME.py, which says in its head what it needs and which formats it has (README.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kv::peers {

struct Format {
  std::string peer;  // "ggml"
  std::string name;  // "q8_0"
  std::string
      stored;  // kvlab's codec of the same bits: an output is compared with FP64 on rows as it stores them
  std::string
      versus;  // kvlab's codec whose time it is compared with; `stored`, unless the file says otherwise
  double tolerance = 0;  // relative L2 that the peer's arithmetic may differ from that

  std::string text() const { return peer + "/" + name; }  // as cells have it
};

// Of every peer, in the order of names and of their files. Throws std::invalid_argument for a file whose head is wrong.
std::vector<Format> formats();
// Throws std::out_of_range for a name that formats() does not have.
Format format_named(std::string_view text);

// Empty if the peer is installed, else the command that installs it.
std::string why_absent(const std::string& peer);

}  // namespace kv::peers
