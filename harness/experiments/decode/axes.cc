#include "harness/experiments/decode/axes.h"

#include "harness/config/axes.h"
#include "harness/io/suggestion.h"
#include "harness/peers/peers.h"

namespace kv::experiments {
namespace {

std::vector<std::string> read_peers(config::Section& section, const std::string& key,
                                    const std::vector<std::string>& fallback) {
  if (!section.has(key)) return fallback;
  std::vector<std::string> known, peers;
  for (const peers::Format& format : peers::formats()) known.push_back(format.text());
  for (const std::string& written : section.texts(key, {})) {
    const auto before = peers.size();
    for (const std::string& format : known) {
      if (format == written || format.starts_with(written + "/")) peers.push_back(format);
    }
    if (peers.size() > before) continue;
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    section.fail(key, "must be among " + list + ", or a name before the slash, not '" + written + "'" +
                          io::did_you_mean(written, known));
  }
  config::refuse_repeats(section, key, peers);
  return peers;
}

}  // namespace

const config::Key<std::vector<std::string>> kPeersKey{"peers",
                                                      config::SharedTable::kSweep,
                                                      {},
                                                      read_peers,
                                                      "other engines and their formats, as \"ggml/q8_0\""};

}  // namespace kv::experiments
