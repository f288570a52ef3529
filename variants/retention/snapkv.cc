// snapkv: the prompt is cut down once, by what its last queries look at (Li et al. 2024, arXiv:2404.14469).
//
// The queries of its last `window` tokens vote (variants/retention/prompt_cut.h); the budget - window tokens with the
// most votes stay, and the window. All later tokens are kept.
//
// The authors' code votes for every query head alone, having copied the keys to each; here a kv head has one
// set of rows.
#include "variants/list.h"
#include "variants/retention/positions.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

class SnapKv : public VotedCut {
 public:
  SnapKv(const Stage& stage, const RetentionContext& context) : VotedCut(stage, context) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<SnapKv>(*this); }

 private:
  void decide(std::vector<float> votes) override { keep_most_voted(votes, voted_rows()); }
};

std::vector<Parameter> snapkv_parameters() {
  std::vector<Parameter> parameters =
      voting_parameters("rows that the prompt is cut down to, the window included");
  parameters.push_back(positions_parameter());
  return parameters;
}

}  // namespace

const RetentionEntry snapkv = prompt_cut_entry<SnapKv, Voting>(
    {.name = "snapkv",
     .help = "cuts a long prompt down to what its last queries look at, and keeps all that follows",
     .source = "SnapKV, Li et al. 2024 (arXiv:2404.14469); its code lets each query head vote alone",
     .parameters = snapkv_parameters()},
    {.rotates_at_read = rotates_by_cache_position});

}  // namespace kv::retention
