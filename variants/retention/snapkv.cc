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
  SnapKv(const Voting& voting, const RetentionContext& context) : VotedCut(voting, context) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<SnapKv>(*this); }

 private:
  void decide(std::vector<float> votes) override { keep_most_voted(votes, voted_rows()); }
};

std::unique_ptr<Retention> make_snapkv(const Stage& stage, const RetentionContext& context) {
  return std::make_unique<SnapKv>(Voting(stage, context.max_tokens), context);
}
int64_t snapkv_slots(const Stage& stage, const SequenceLengths& lengths) {
  return PromptCut::slots(Voting(stage, lengths.max_tokens).budget, lengths);
}
int64_t snapkv_metadata_bytes(const Stage& stage, int64_t max_tokens) {
  return PromptCut::metadata_bytes(Voting(stage, max_tokens).budget, max_tokens);
}

}  // namespace

const RetentionEntry snapkv{
    {.name = "snapkv",
     .help = "cuts a long prompt down to what its last queries look at, and keeps all that follows",
     .source = "SnapKV, Li et al. 2024 (arXiv:2404.14469)",
     .parameters =
         {Parameter::rows("budget", "256", {48}, "rows that the prompt is cut down to, the window included"),
          Parameter::integer("window", "32", 1, 1024, {16}, "last tokens of the prompt: they vote, and stay"),
          Parameter::integer("kernel", "5", 1, 63, {7}, "neighbours that votes are averaged over; odd"),
          positions_parameter()}},
    make_snapkv,
    snapkv_slots,
    snapkv_metadata_bytes,
    /*keeps_all=*/false,
    /*scores=*/true,
    /*cuts_prompt=*/true,
    "a prompt that was cut stays cut"};

}  // namespace kv::retention
