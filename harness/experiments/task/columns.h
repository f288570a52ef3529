// The columns that tasks alone write.
#pragma once

#include "harness/results/estimate.h"

namespace kv::experiments {

inline constexpr auto kTaskName =
    results::TextColumn{"task", "", "task: what the text asks for (configs/README.md)"}.axis("{}").swept_by(
        "task");
inline constexpr auto kDepth =
    results::IntegerColumn{"depth", "%", "task: part of the text before what is asked for"}
        .axis("depth {} %")
        .swept_by("depth");
inline constexpr auto kQuery =
    results::TextColumn{"query", "", "task: the question comes before or after the prompt is compressed"}
        .one_of("before after")
        .axis("question {} compression")
        .swept_by("query");
inline constexpr auto kTemplate =
    results::TextColumn{"template", "",
                        "task: chat turns around the text with its question, and before the answer"}
        .one_of("plain chatml")
        .axis("template {}")
        .swept_by("template");
inline constexpr results::IntegerColumn kRight{
    "right", "",
    "task: answers of `batch` that greedy decoding gives in full, each of its tokens the likeliest"};
inline constexpr results::IntegerColumn kFullRight{"full_right", "", "task: the same of the full f32 cache"};
inline constexpr auto kUsable =
    results::TextColumn{"usable", "",
                        "task: no, where the full f32 cache gives fewer answers than `floor` asks for: the "
                        "model cannot do the task, and losing it says nothing about a cache"}
        .one_of("yes no");
inline constexpr auto kAccuracy =
    results::estimate<"accuracy">("1", "task: right / batch", "95 % interval (Wilson)")
        .called("right answers");
inline constexpr results::NumberColumn kCredit{
    "credit", "1", "task: mean share of an answer's tokens that are the likeliest after those before them"};
inline constexpr results::NumberColumn kDifferenceP{"difference_p", "1",
                                                    "task: probability of answers that differ from the full "
                                                    "f32 cache's as one-sidedly by chance (McNemar, exact)"};
inline constexpr results::TextColumn kOutcomes{
    "outcomes", "",
    "task: a letter a question: b this cache and the full f32 cache answer it, c this cache alone, f the "
    "full cache alone, n neither"};

// Columns of a configuration: all cells that differ from a cell in depth and length alone. Without `outcomes`, from the pairs of
// answers that the cells' counts allow and that differ most often.
inline constexpr results::IntegerColumn kPooledQuestions{
    "pooled_questions", "", "task: questions of the variant at all usable depths and lengths"};
inline constexpr results::IntegerColumn kPooledRight{"pooled_right", "", "task: right answers to them"};
inline constexpr results::IntegerColumn kPooledFullRight{"pooled_full_right", "",
                                                         "task: right answers of the full f32 cache to them"};
inline constexpr auto kPooledChange = results::estimate<"pooled_change">(
    "1", "task: (pooled_right - pooled_full_right) / pooled_questions", "95 % interval (Tango, paired)");
inline constexpr results::NumberColumn kPooledP{
    "pooled_p", "1",
    "task: probability of pooled answers that differ as one-sidedly by chance (McNemar, exact, two-sided)"};
inline constexpr results::NumberColumn kPooledPNeeded{
    "pooled_p_needed", "1",
    "task: pooled_p up to which the verdict is worse or better (Holm over the configuration's variants that "
    "some answers could decide, Tarone)"};
inline constexpr results::NumberColumn kStratifiedP{
    "stratified_p", "1",
    "task: the same of right answers by depth and length, as if the questions were not the full cache's "
    "(Mantel-Haenszel, exact)"};
inline constexpr auto kTaskColumns =
    results::column_list(kTaskName, kDepth, kQuery, kTemplate, kRight, kFullRight, kUsable, kAccuracy,
                         kCredit, kDifferenceP, kOutcomes, kPooledQuestions, kPooledRight, kPooledFullRight,
                         kPooledChange, kPooledP, kPooledPNeeded, kStratifiedP);

}  // namespace kv::experiments
