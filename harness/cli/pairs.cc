#include "harness/cli/listing.h"

#include <algorithm>
#include <vector>

#include "variants/cache/compatibility.h"
#include "variants/list.h"

namespace kv::cli {
namespace {

// Lists each reason once, whichever stage it names, numbered by first appearance.
class Footnotes {
 public:
  // Same as mark() below, for the table of pairs: drops the names of the cell's retention and selection.
  std::string mark(const std::string& reason, const Spec& spec) {
    const std::string named = without(reason, "retention", spec.retention.name);
    return number(without(named, "selection", spec.selection.name));
  }
  // Drops the name `stage` of this kind.
  std::string mark(const std::string& reason, const std::string& kind, const std::string& stage) {
    return number(without(reason, kind, stage));
  }
  std::string print() const {
    std::string text;
    for (size_t i = 0; i < reasons_.size(); ++i)
      text += "- [" + std::to_string(i + 1) + "] " + reasons_[i] + "\n";
    return text;
  }

 private:
  static std::string without(std::string reason, const std::string& kind, const std::string& stage) {
    const std::string named = kind + " '" + stage + "'";
    if (const size_t at = reason.find(named); at != std::string::npos)
      reason.replace(at, named.size(), "the " + kind);
    return reason;
  }
  std::string number(const std::string& reason) {
    const auto at = std::find(reasons_.begin(), reasons_.end(), reason);
    const auto number = at - reasons_.begin() + 1;
    if (at == reasons_.end()) reasons_.push_back(reason);
    return "no [" + std::to_string(number) + "]";
  }

  std::vector<std::string> reasons_;
};

// Entries' stages in a spec whose other stages have their defaults.
std::string table(const std::string& corner, const auto& rows, Stage Spec::*row_stage, const auto& columns,
                  Stage Spec::*column_stage, Footnotes& notes) {
  std::string text = "| " + corner + " |", rule = "|---|";
  for (const auto* column : columns) {
    text += " " + std::string(column->name) + " |";
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const auto* row : rows) {
    text += "| " + std::string(row->name) + " |";
    for (const auto* column : columns) {
      Spec spec = default_spec();
      spec.*row_stage = default_stage(*row);
      spec.*column_stage = default_stage(*column);
      const std::string reason = unsupported_reason(spec);
      text += " " + (reason.empty() ? "yes" : notes.mark(reason, spec)) + " |";
    }
    text += "\n";
  }
  return text + "\n";
}

// A head_dim that is a multiple of 8 but of no larger power of two reveals which codecs require more.
std::string head_dims() {
  std::string text = "| codec | head_dim |\n|---|---|\n";
  for (const auto* codec : kCodecs) {
    Spec spec = default_spec();
    spec.codec = default_stage(*codec);
    const std::string reason = unsupported_reason(spec, 8);
    text +=
        "| " + std::string(codec->name) + " | " + (reason.empty() ? "any multiple of 8" : reason) + " |\n";
  }
  return text + "\n";
}

// The operations that sequences of each stage support, if all other stages support every operation.
std::string lives(Footnotes& notes) {
  const auto sharing = std::find_if(kPlacements.begin(), kPlacements.end(),
                                    [](const PlacementEntry* p) { return p->shares_blocks(); });
  std::string text = "| stage | what limits truncation | prefixes are shared |\n|---|---|---|\n";
  const auto add = [&](const Entry& entry, Stage Spec::*stage, const char* kind, std::string_view limit) {
    Spec spec = default_spec();
    spec.placement = default_stage(**sharing);
    spec.*stage = default_stage(entry);
    const std::string reason = unshareable_reason(spec);
    text += "| " + std::string(entry.name) + " | " + std::string(limit) + " | " +
            (reason.empty() ? "yes" : notes.mark(reason, kind, std::string(entry.name))) + " |\n";
  };
  for (const auto* p : kPlacements) add(*p, &Spec::placement, "placement", "");
  for (const auto* c : kCodecs) add(*c, &Spec::codec, "codec", irreversible(c->make(default_stage(*c))));
  for (const auto* r : kRetentions)
    add(*r, &Spec::retention, "retention", r->keeps_all ? "" : r->irreversible);
  for (const auto* s : kSelections) add(*s, &Spec::selection, "selection", "");
  return text + "\n";
}

}  // namespace

std::string pairs_page() {
  constexpr auto placement = &Spec::placement, codec = &Spec::codec, retention = &Spec::retention,
                 selection = &Spec::selection;
  Footnotes notes;
  std::string text =
      "# Which pairs work\n\n"
      "Made from the registry by `./kvlab list --pairs > variants/pairs.md`; a test holds the two together. "
      "Every\n"
      "stage has its default parameters here, and the others are those that a spec leaves out. A pair "
      "that\n"
      "does not work is refused with the same reason when a cache of it is built.\n\n";
  text += "## Placement and codec\n\n" + table("placement", kPlacements, placement, kCodecs, codec, notes);
  text += "## Retention and codec\n\n" + table("retention", kRetentions, retention, kCodecs, codec, notes);
  text += "## Placement and retention\n\n" +
          table("placement", kPlacements, placement, kRetentions, retention, notes);
  text += "## Selection with the others\n\n";
  text += table("placement", kPlacements, placement, kSelections, selection, notes);
  text += table("codec", kCodecs, codec, kSelections, selection, notes);
  text += table("retention", kRetentions, retention, kSelections, selection, notes);
  text += "## Truncation and shared prefixes\n\n" + lives(notes);
  text += "## Reasons\n\n" + notes.print() + "\n## Codec and head_dim\n\n" + head_dims();
  text.pop_back();
  return text;
}

}  // namespace kv::cli
