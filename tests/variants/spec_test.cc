// Spec strings: what parses, what it prints as, and what a mistake is told.
#include "variants/cache/spec.h"

#include <gtest/gtest.h>

#include "tests/message_of.h"
#include "variants/list.h"

namespace kv {
namespace {

std::string error_of(const std::string& text) {
  return message_of([&] { parse_spec(text); });
}

TEST(Spec, WhatIsLeftOutHasItsDefault) {
  EXPECT_EQ(parse_spec("contiguous"), parse_spec("contiguous/f32/full"));
  EXPECT_EQ(parse_spec("doubling/full"), parse_spec("doubling/f32"));
  EXPECT_EQ(parse_spec("doubling(read=view)/f16"), parse_spec("doubling/f16"));
}

TEST(Spec, TheCanonicalFormLeavesDefaultsOut) {
  EXPECT_EQ(parse_spec("contiguous/f32/full").print(), "contiguous");
  EXPECT_EQ(parse_spec("doubling(read=copy)/f16").print(), "doubling(read=copy)/f16");
  EXPECT_EQ(parse_spec("contiguous(layout=bhsd)/f16/full").print(), "contiguous/f16");
}

// Every value a choice can have, and both ends of an integer's range, for every parameter of every entry.
template <class Table>
void expect_round_trips(const Table& table, const std::string& before) {
  for (const auto* entry : table) {
    const std::string plain = before + std::string(entry->name);
    EXPECT_EQ(parse_spec(parse_spec(plain).print()), parse_spec(plain)) << plain;
    for (const Parameter& p : entry->parameters) {
      std::vector<std::string> values(p.choices.begin(), p.choices.end());
      if (p.kind == Parameter::Kind::kText) {
        values = {"/some/folder", "", "a=b"};
      } else if (p.kind == Parameter::Kind::kDecimal) {
        values = {print_hundredths(p.min), print_hundredths(p.max), print_hundredths((p.min + p.max) / 2)};
      } else if (p.kind != Parameter::Kind::kChoice && p.kind != Parameter::Kind::kCodec)
        values = {std::to_string(p.min), std::to_string(p.max)};
      if (p.kind == Parameter::Kind::kHeads) values = {"0", "0+3", "1023", "0.25"};
      if (p.kind == Parameter::Kind::kRows) values.insert(values.end(), {"0.1", "0.25", "0.999"});
      for (const std::string& value : values) {
        const std::string text = plain + "(" + std::string(p.name) + "=" + value + ")";
        const Spec spec = parse_spec(text);
        EXPECT_EQ(parse_spec(spec.print()), spec) << text;
      }
      EXPECT_NO_THROW(parse_spec(plain + "(" + std::string(p.name) + "=" + std::string(p.fallback) + ")"));
    }
  }
}

TEST(Spec, PrintedFormsParseBack) {
  expect_round_trips(kPlacements, "");
  expect_round_trips(kCodecs, "contiguous/");
  expect_round_trips(kRetentions, "contiguous/");
}

TEST(Spec, NamesAreUniqueAcrossKinds) {
  std::vector<std::string_view> names;
  for (const auto* e : kPlacements) names.push_back(e->name);
  for (const auto* e : kCodecs) names.push_back(e->name);
  for (const auto* e : kRetentions) names.push_back(e->name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Spec, AMistakeGetsACaretAndTheNearestName) {
  const auto expect_near = [](const char* spec, const char* near, const char* caret) {
    const std::string error = error_of(spec);
    EXPECT_NE(error.find(near), std::string::npos) << error;
    EXPECT_TRUE(error.ends_with("\n  " + std::string(spec) + "\n  " + caret)) << error;
  };
  expect_near("contiguos/f16", "no placement is called 'contiguos'; did you mean 'contiguous'? Known: ", "^");
  expect_near("contiguous/f17", "is called 'f17'; did you mean 'f16'? Known: ", "           ^");
  EXPECT_NE(error_of("doubling(raed=copy)").find("did you mean 'read'?"), std::string::npos);
  EXPECT_NE(error_of("doubling(read=slow)")
                .find("'read' takes view|copy|repeat\n  doubling(read=slow)\n                ^"),
            std::string::npos)
      << error_of("doubling(read=slow)");
}

TEST(Spec, RowsAreACountOrAShare) {
  const Stage share = parse_spec("contiguous/ring(window=0.10)").retention;
  EXPECT_EQ(share.rows("window", 4096), 410);  // 409.6
  EXPECT_EQ(share.rows("window", 1), 1) << "never none";
  EXPECT_EQ(parse_spec("contiguous/ring(window=0.10)").print(), "contiguous/ring(window=0.1)");
  EXPECT_EQ(parse_spec("contiguous/ring(window=.5)").print(), "contiguous/ring(window=0.5)");
  EXPECT_EQ(parse_spec("contiguous/ring(window=010)").retention.rows("window", 4096), 10);
  for (const char* wrong : {"0", "0.0", "1.0", "1.5", "-0.5", "0.5x", "5e-1", "nan", "", "."}) {
    const std::string error = error_of("contiguous/ring(window=" + std::string(wrong) + ")");
    EXPECT_NE(
        error.find("'window' takes rows, 0.x or model: at least 1, or a share of max_tokens as in 0.25"),
        std::string::npos)
        << error;
  }
}

TEST(Spec, DecimalsHaveOneFormAndBounds) {
  for (const char* same : {"1.5", "1.50", "01.5", "1.500"}) {
    const Spec spec = parse_spec("doubling(factor=" + std::string(same) + ")");
    EXPECT_EQ(spec.print(), "doubling(factor=1.5)");
    EXPECT_EQ(spec.placement.hundredths("factor"), 150);
  }
  EXPECT_EQ(parse_spec("doubling(factor=2.0)").print(), "doubling");
  EXPECT_EQ(parse_spec("doubling(factor=2.05)").print(), "doubling(factor=2.05)");
  for (const char* wrong :
       {"1.49", "4.01", "1", "1.505", "-2", "2.", ".5", "2e0", "nan", "", "1.5x", "999999999999999999999"}) {
    const std::string error = error_of("doubling(factor=" + std::string(wrong) + ")");
    EXPECT_NE(error.find("'factor' takes 1.5…4\n"), std::string::npos) << wrong << ": " << error;
  }
}

TEST(Spec, ASelectionComesLastAndAllIsLeftOut) {
  EXPECT_EQ(parse_spec("paged/f16/full/all"), parse_spec("paged/f16"));
  EXPECT_EQ(parse_spec("paged/f16/all").print(), "paged/f16");
  const Spec quest = parse_spec("paged/f16/full/quest(page=16,top=0.25)");
  EXPECT_EQ(quest.print(), "paged/f16/quest(top=0.25)");
  EXPECT_EQ(parse_spec(quest.print()), quest);
  EXPECT_EQ(parse_spec("contiguous/ring/topk(rows=32)").print(), "contiguous/ring/topk(rows=32)");
  const std::string near = error_of("paged/q8_0/qest"), none = error_of("paged/full/f32");
  EXPECT_TRUE(near.starts_with(
      "spec: no retention or selection is called 'qest'; did you mean 'quest'? Known: full, ring,"))
      << near;
  EXPECT_TRUE(near.ends_with(")\n  paged/q8_0/qest\n             ^")) << near;
  EXPECT_TRUE(none.starts_with("spec: no selection is called 'f32'; known: all, quest, topk")) << none;
  EXPECT_TRUE(none.ends_with("\n  paged/full/f32\n             ^")) << none;
  EXPECT_EQ(error_of("paged/quest(top=1.5)"),
            "spec: 'top' takes 0.01…1\n  paged/quest(top=1.5)\n                  ^");
}

TEST(Spec, ASideOfASplitIsACodecWithItsParameters) {
  const Spec pair = parse_spec("paged(block=32)/split(v=turbo(bits=03),k=kivi(residual=128,bits=2))/ring");
  EXPECT_EQ(pair.print(), "paged(block=32)/split(k=kivi(bits=2),v=turbo(bits=3))/ring");
  EXPECT_EQ(parse_spec(pair.print()), pair);
  EXPECT_EQ(parse_spec("paged/split(k=f16,v=nvfp4(tensor=row))").print(), "paged/split(v=nvfp4)");
  EXPECT_EQ(
      error_of("paged/split(k=kivi(bit=2))"),
      "spec: 'kivi' has no parameter 'bit'; did you mean 'bits', 'k_bits' or 'v_bits'? Known: bits, k_bits, "
      "v_bits, group, residual, … (11)\n"
      "  paged/split(k=kivi(bit=2))\n                     ^");
  EXPECT_EQ(error_of("paged/split(k=q8_0(read=copy))"),
            "spec: K and V have 'read' together: no side of a split takes it\n"
            "  paged/split(k=q8_0(read=copy))\n                     ^");
  EXPECT_EQ(error_of("paged/split(k=split)"),
            "spec: no side of a split takes 'split'\n  paged/split(k=split)\n                ^");
  EXPECT_TRUE(error_of("paged/split(k=q80)")
                  .starts_with("spec: no codec is called 'q80'; did you mean 'q8_0'? Known: f32, f16,"));
}

TEST(Spec, WhatIsNotASpecIsRefused) {
  for (const char* text : {"",
                           "/",
                           "contiguous/",
                           "contiguous//full",
                           "contiguous/f16/full/f16",
                           "contiguous(",
                           "contiguous()",
                           "doubling(read)",
                           "doubling(read=)",
                           "doubling(read=copy",
                           "doubling(copy)",
                           "doubling(read=copy,read=copy)",
                           "contiguous /f16",
                           "Contiguous",
                           "f16",
                           "contiguous/full/f16",
                           "contiguous/all/full",
                           "contiguous/quest/all",
                           "contiguous/f16/full/all/all",
                           "contiguous/split(k=)",
                           "contiguous/split(k=q8_0()",
                           "contiguous/split(k=q8_0(residual=1)",
                           "contiguous/all/"}) {
    EXPECT_THROW(parse_spec(text), std::invalid_argument) << "'" << text << "'";
  }
}

}  // namespace
}  // namespace kv
