// The axes and keys of tasks.
#pragma once

#include "harness/config/key.h"
#include "harness/config/shared_axes.h"
#include "harness/experiments/task/columns.h"
#include "harness/experiments/task/questions.h"

namespace kv::experiments {

// Throws std::invalid_argument for another word than the column's two.
template <const results::TextColumn& column>
void check_word(const std::string& text) {
  const std::vector<std::string> words = results::words_of(column.values);
  if (text != words[0] && text != words[1])
    throw std::invalid_argument("'" + text + "' is neither \"" + words[0] + "\" nor \"" + words[1] + "\"");
}

inline const config::Axis<std::string> kTaskAxis{
    kTaskName,
    "task",
    config::SharedTable::kOwn,
    {"single"},
    config::text_list(check_task_name),
    "what the text asks for: single, keys, two, queries, values, lookup, variables, words, copy"};
inline const config::Axis<int64_t> kDepthAxis{kDepth,
                                              "depth",
                                              config::SharedTable::kOwn,
                                              {10, 50, 90},
                                              config::token_list(),
                                              "percent of the text before what is asked for"};
inline const config::Axis<std::string> kQueryAxis{kQuery,
                                                  "query",
                                                  config::SharedTable::kOwn,
                                                  {"after"},
                                                  config::text_list(check_word<kQuery>),
                                                  "before: the question, of two the first, is part of the "
                                                  "prompt that a policy compresses; after: it follows"};
inline const config::Axis<std::string> kTemplateAxis{
    kTemplate,
    "template",
    config::SharedTable::kOwn,
    {"plain"},
    config::text_list(check_word<kTemplate>),
    "chatml: text and question are a user's turn, the answer begins the assistant's; for models whose "
    "tokenizer has <|im_start|>"};
inline const config::Key<double> kFloorKey{"floor", config::SharedTable::kOwn, 0.5, config::number(0.0, 1.0),
                                           "share of answers below which the full cache cannot do a task"};

}  // namespace kv::experiments
