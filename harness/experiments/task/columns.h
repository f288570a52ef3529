// The columns that tasks alone write.
#pragma once

#include "harness/results/column.h"

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
    results::TextColumn{
        "usable", "",
        "task: no, where the full f32 cache gives fewer answers than `floor` asks for: the model "
        "cannot do the task, and losing it says nothing about a cache"}
        .one_of("yes no");
inline constexpr auto kAccuracy =
    results::NumberColumn{"accuracy", "1", "task: right / batch"}.called("right answers");
inline constexpr results::NumberColumn kAccuracyCiLow{"accuracy_ci_low", "1",
                                                      "lower end of accuracy's 95 % interval (Wilson)"};
inline constexpr results::NumberColumn kAccuracyCiHigh{"accuracy_ci_high", "1",
                                                       "upper end of accuracy's 95 % interval"};
inline constexpr results::NumberColumn kCredit{
    "credit", "1", "task: mean share of an answer's tokens that are the likeliest after those before them"};
inline constexpr results::NumberColumn kDifferenceP{"difference_p", "1",
                                                    "task: probability of answers that differ from the full "
                                                    "f32 cache's as one-sidedly by chance (McNemar, exact)"};
inline constexpr auto kTaskColumns =
    results::column_list(kTaskName, kDepth, kQuery, kTemplate, kRight, kFullRight, kUsable, kAccuracy,
                         kAccuracyCiLow, kAccuracyCiHigh, kCredit, kDifferenceP);

}  // namespace kv::experiments
