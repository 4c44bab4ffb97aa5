#include "crds/checker.h"

#include <gtest/gtest.h>

#include <concepts>
#include <limits>

#include "crds/training_job_fields.h"

namespace plimsoll::crds {
namespace {

// Described as the API's objects are, with a rule of the whole.
struct Limits {
  std::int64_t least = 1;
  std::int64_t most = 8;
};
template <class Visitor, class T>
requires std::same_as<std::remove_const_t<T>, Limits>
void describe(Visitor& visitor, T& limits) {
  visitor.integer("least", limits.least, Presence::kOptional, {0, 100});
  visitor.integer("most", limits.most, Presence::kOptional, {0, 100});
}
void check_rules(const Limits& limits, const FieldPath& path, FieldErrors& errors) {
  if (limits.least > limits.most) {
    errors.add(path, "least must not exceed most");
  }
}

template <class Check>
std::string errors_of(Check check) {
  const FieldPath path("spec");
  FieldErrors errors;
  Checker checker(path, errors);
  check(checker);
  return to_string(errors.list(), 100);
}

TEST(Checker, RangesIncludeBothEnds) {
  const auto check = [](std::int64_t value) {
    return errors_of([&](Checker& checker) { checker.integer("n", value, Presence::kRequired, {1, 8}); });
  };
  EXPECT_EQ(check(1), "");
  EXPECT_EQ(check(8), "");
  EXPECT_EQ(check(0), "spec.n: must be at least 1, is 0");
  EXPECT_EQ(check(9), "spec.n: must be at most 8, is 9");
  EXPECT_EQ(errors_of([](Checker& checker) { checker.optional_integer("n", std::nullopt, {1, 8}); }), "");
  EXPECT_EQ(errors_of([](Checker& checker) {
              checker.optional_integer("n", 0, {1, 8});
            }),
            "spec.n: must be at least 1, is 0");
}

TEST(Checker, AnEmptyTextIsAbsentOnlyWhereItIsOptional) {
  const auto check = [](const std::string& value, Presence presence) {
    return errors_of([&](Checker& checker) { checker.text("name", value, presence, kTableName); });
  };
  EXPECT_EQ(check("", Presence::kOptional), "");
  EXPECT_NE(check("", Presence::kRequired), "");
  EXPECT_EQ(check("user", Presence::kRequired), "");
  EXPECT_EQ(check("-user", Presence::kOptional),
            std::string("spec.name: must be ") + kTableName.form + ", is \"-user\"");
}

TEST(Checker, AnEmptyListIsAbsentOnlyWhereItIsOptional) {
  const auto check = [](const std::vector<std::int64_t>& values, Presence presence) {
    return errors_of([&](Checker& checker) { checker.integers("widths", values, presence, {2, 3}, {1, 9}); });
  };
  EXPECT_EQ(check({}, Presence::kOptional), "");
  EXPECT_EQ(check({}, Presence::kRequired), "spec.widths: must have 2 to 3 items, has 0");
  EXPECT_EQ(check({1}, Presence::kOptional), "spec.widths: must have 2 to 3 items, has 1");
  EXPECT_EQ(check({1, 2, 3, 4}, Presence::kOptional), "spec.widths: must have 2 to 3 items, has 4");
  EXPECT_EQ(check({1, 10, 0}, Presence::kOptional),
            "spec.widths[1]: must be at most 9, is 10; spec.widths[2]: must be at least 1, is 0");
}

TEST(Checker, SetsHoldNothingTwice) {
  const auto codes = [](const std::vector<std::int64_t>& values) {
    return errors_of([&](Checker& checker) { checker.integer_set("codes", values, {0, 9}, {0, 255}); });
  };
  EXPECT_EQ(codes({1, 2, 3}), "");
  EXPECT_EQ(codes({1, 2, 3, 2, 1}), "spec.codes[3]: is twice in the list");
  EXPECT_EQ(
      errors_of([](Checker& checker) {
        checker.choices<FailureCause>("causes", {FailureCause::kUnknown, FailureCause::kUnknown}, {0, 9});
      }),
      "spec.causes[1]: is twice in the list");
}

TEST(Checker, DecimalsAreNumbersWithinTheirBounds) {
  const auto check = [](double value) {
    return errors_of(
        [&](Checker& checker) { checker.decimal("ratio", value, Presence::kOptional, kBumpUpRatio); });
  };
  EXPECT_EQ(check(1), "");
  EXPECT_EQ(check(10), "");
  EXPECT_EQ(check(0.5), std::string("spec.ratio: must be ") + kBumpUpRatio.form + ", is 0.5");
  EXPECT_NE(check(10.5), "");
  EXPECT_NE(check(std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_NE(check(std::numeric_limits<double>::infinity()), "");
}

TEST(Checker, SharesAreBelowOne) {
  const auto check = [](double value) {
    return errors_of(
        [&](Checker& checker) { checker.percentage("headroom", value, Presence::kOptional, kPercentage); });
  };
  EXPECT_EQ(check(0), "");
  EXPECT_EQ(check(0.999999), "");
  EXPECT_EQ(check(1), std::string("spec.headroom: must be ") + kPercentage.form);
  EXPECT_NE(check(-0.01), "");
  EXPECT_NE(check(std::numeric_limits<double>::quiet_NaN()), "");
}

TEST(Checker, SizesHaveALeastValue) {
  const auto check = [](std::optional<Bytes> value, const QuantityRule& rule) {
    return errors_of([&](Checker& checker) { checker.optional_bytes("memory", value, rule); });
  };
  EXPECT_EQ(check(std::nullopt, kPositiveBytes), "");
  EXPECT_EQ(check(Bytes{1}, kPositiveBytes), "");
  EXPECT_EQ(check(Bytes{0}, kPositiveBytes), "spec.memory: must be at least 1");
  EXPECT_EQ(check(Bytes{0}, kAnyBytes), "");
  EXPECT_EQ(check(Bytes{-1}, kAnyBytes), "spec.memory: must be at least 0");
}

TEST(Checker, AnObjectIsCheckedFieldByFieldAndThenAsAWhole) {
  EXPECT_EQ(errors_of([](Checker& checker) {
              checker.object("limits", Limits{.least = 9, .most = 101}, Presence::kOptional);
              checker.objects("list", std::vector<Limits>{{}, {.least = 5, .most = 4}}, Presence::kOptional,
                              {0, 1});
            }),
            "spec.limits.most: must be at most 100, is 101; spec.list[1]: least must not exceed most");
  EXPECT_EQ(errors_of([](Checker& checker) { checker.optional_object<Limits>("limits", std::nullopt); }), "");
}

TEST(Checker, AnEnumeratorMayBeExcluded) {
  EXPECT_EQ(errors_of([](Checker& checker) {
              checker.choice_but("cause", FailureCause::kUnknown, Presence::kRequired,
                                 {FailureCause::kPreempted, FailureCause::kUnknown});
              checker.choice_but("other", FailureCause::kUserError, Presence::kRequired,
                                 {FailureCause::kPreempted});
            }),
            "spec.cause: cannot be Unknown");
}

}  // namespace
}  // namespace plimsoll::crds
