#include "estimator/kernels/rules.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "estimator/kernels/formulas.h"
#include "tests/checkout.h"

namespace plimsoll::estimator {
namespace {

TEST(KernelRules, EveryRuleIsFoundByItsName) {
  for (const KernelRule& rule : kernel_rules()) {
    EXPECT_EQ(find_kernel_rule(rule.name), &rule) << rule.name << " occurs twice";
    EXPECT_NE(rule.cpu, nullptr);
    EXPECT_NE(rule.cuda, nullptr);
  }
}

TEST(KernelRules, EveryRowOfTheFileIsARuleWhoseSourceIsExplained) {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/estimator/kernels/rules.csv");
  std::string comments;
  std::size_t rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) {
      comments += line + '\n';
    } else {
      ++rows;
    }
  }
  ASSERT_GT(rows, 600U);
  EXPECT_EQ(kernel_rules().size(), rows - 1);  // without the heading
  for (const KernelRule& rule : kernel_rules()) {
    EXPECT_NE(comments.find("#   " + std::string(rule.source) + ": "), std::string::npos) << rule.source;
  }
}

TEST(KernelRules, SplitsAreThoseThatTensorParallelismKnows) {
  const std::set<std::string_view> known = {
      "",      "pointwise", "reduce",      "along",     "normalize",
      "widen", "triangle",  "concatenate", "embedding", "embedding_backward"};
  std::set<std::string_view> used;
  for (const KernelRule& rule : kernel_rules()) {
    EXPECT_TRUE(known.contains(rule.split)) << rule.name << ": " << rule.split;
    used.insert(rule.split);
  }
  EXPECT_EQ(used, known);
  EXPECT_EQ(find_kernel_rule("aten::add")->split, "pointwise");
  EXPECT_EQ(find_kernel_rule("aten::glu_backward")->split, "along");
}

TEST(KernelRules, FindsFormulasAndNothingForUnknownOperators) {
  const KernelRule* const product = find_kernel_rule("aten::mm");
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->cpu, &formula::matrix_copies);
  EXPECT_EQ(product->cuda, &formula::none);
  EXPECT_EQ(find_kernel_rule("plimsoll::lookup_backward")->cpu, &formula::none);  // the last row
  EXPECT_EQ(find_kernel_rule(""), nullptr);
  EXPECT_EQ(find_kernel_rule("aten::mm "), nullptr);
  EXPECT_EQ(find_kernel_rule("zzz"), nullptr);
}

}  // namespace
}  // namespace plimsoll::estimator
