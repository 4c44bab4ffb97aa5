// Label and field selectors, parsed from the query parameters labelSelector and fieldSelector or from the
// LabelSelector objects of webhook configurations. Plain values; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/resource_type.h"
#include "tests/fake_apiserver/status.h"

namespace plimsoll::testing::fake {

class LabelSelector {
 public:
  // "a=b,c!=d,e in (x,y),f notin (z),g,!h"; empty text selects all.
  static Outcome<LabelSelector> parse(const std::string& text);
  // {matchLabels, matchExpressions}; an empty object selects all.
  static Outcome<LabelSelector> of(const Json& selector);

  bool matches(const Json& labels) const;
  bool empty() const { return requirements_.empty(); }

 private:
  enum class Operator { kIn, kNotIn, kExists, kMissing };
  struct Requirement {
    std::string key;
    Operator op = Operator::kExists;
    std::vector<std::string> values;
  };
  friend class LabelParser;
  std::vector<Requirement> requirements_;
};

class FieldSelector {
 public:
  // "metadata.name=x,status.phase!=Running". Errors: 400 for a field that is not selectable.
  static Outcome<FieldSelector> parse(const std::string& text, const ResourceType& type);

  bool matches(const Json& object) const;
  bool empty() const { return requirements_.empty(); }
  // The required metadata.name; empty when any name matches.
  std::string required_name() const;

 private:
  struct Requirement {
    std::string path;
    bool equal = true;
    std::string value;
  };
  std::vector<Requirement> requirements_;
};

}  // namespace plimsoll::testing::fake
