// Runs each test once an instruction set of this machine.
#pragma once

#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"

namespace kv::test {

class EveryIsa : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { cpu::force_isa(GetParam()); }
  void TearDown() override { cpu::force_isa("auto"); }
};
inline std::string isa_name(const testing::TestParamInfo<std::string>& isa) { return isa.param; }
inline auto every_isa() { return testing::ValuesIn(cpu::available_isas()); }

}  // namespace kv::test
