#include "remediation/pattern_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/json/view.h"
#include "base/words.h"
#include "base/yaml.h"

namespace plimsoll::remediation {
namespace {

using crds::Outcome;

constexpr std::array<std::pair<std::string_view, Rule>, 7> kRules = {{{"proof", Rule::kProof},
                                                                      {"mention", Rule::kMention},
                                                                      {"exception", Rule::kException},
                                                                      {"consequence", Rule::kConsequence},
                                                                      {"killed", Rule::kKilled},
                                                                      {"launcher", Rule::kLauncher},
                                                                      {"harmless", Rule::kHarmless}}};

constexpr std::array kOutcomes = {Outcome::kCudaOutOfMemory, Outcome::kHostOutOfMemory,
                                  Outcome::kPreempted,       Outcome::kInfrastructureFailure,
                                  Outcome::kShardingFailure, Outcome::kUserError,
                                  Outcome::kUnknown};

const std::vector<std::string> kMembers = {"rule",   "outcome",      "text",    "regex",    "with",
                                           "unless", "sharedMemory", "library", "versions", "source"};

bool has_outcome(Rule rule) {
  return rule != Rule::kHarmless && rule != Rule::kLauncher;
}

template <class Range, class Name>
std::string listed_names(const Range& range, Name name) {
  std::vector<std::string> names;
  names.reserve(std::size(range));
  for (const auto& one : range) {
    names.emplace_back(name(one));
  }
  return listed(names);
}

Result<Rule> read_rule(const JsonView& entry) {
  const std::string name = text_member(entry, {"rule"});
  for (const auto& [known, rule] : kRules) {
    if (known == name) {
      return rule;
    }
  }
  return invalid("rule must be one of " + listed_names(kRules, [](const auto& rule) { return rule.first; }),
                 name.substr(0, 64));
}

Result<Outcome> read_outcome(const JsonView& entry) {
  const std::string name = text_member(entry, {"outcome"});
  for (const Outcome known : kOutcomes) {
    if (name_of(known) == name) {
      return known;
    }
  }
  return invalid(
      "outcome must be one of " + listed_names(kOutcomes, [](Outcome one) { return name_of(one); }),
      name.substr(0, 64));
}

// The entry's members that all of its texts share.
Result<Pattern> read_shared(const JsonView& entry) {
  for (const auto& [name, value] : entry.members()) {
    if (std::find(kMembers.begin(), kMembers.end(), name) == kMembers.end()) {
      const std::string shown(name.substr(0, 64));
      return invalid("unknown member " + shown + did_you_mean(shown, kMembers));
    }
  }
  Pattern pattern;
  const Result<Rule> rule = read_rule(entry);
  if (!rule) {
    return rule.error();
  }
  pattern.rule = *rule;
  if (has_outcome(pattern.rule)) {
    const Result<Outcome> outcome = read_outcome(entry);
    if (!outcome) {
      return outcome.error();
    }
    pattern.outcome = *outcome;
  } else if (!member(entry, {"outcome"}).is_null()) {
    return invalid("the rule " + std::string(name_of(pattern.rule)) + " has no outcome");
  }
  if (const JsonView shared = member(entry, {"sharedMemory"}); !shared.is_null()) {
    if (!shared.boolean() || pattern.outcome != Outcome::kHostOutOfMemory) {
      return invalid("sharedMemory is true or false, and of HostOutOfMemory alone");
    }
    pattern.shared_memory = *shared.boolean();
  }
  const std::array<std::pair<const char*, std::string*>, 5> texts = {{{"with", &pattern.with},
                                                                      {"unless", &pattern.unless},
                                                                      {"library", &pattern.library},
                                                                      {"versions", &pattern.versions},
                                                                      {"source", &pattern.source}}};
  for (const auto& [name, value] : texts) {
    const JsonView given = member(entry, {name});
    if (!given.is_null() && (!given.text() || given.text()->size() > kLongestPattern)) {
      return invalid(std::string(name) + " must be a text of at most " + std::to_string(kLongestPattern) +
                     " bytes");
    }
    value->assign(given.text().value_or(""));
  }
  return pattern;
}

Result<void> add_texts(const JsonView& entry, const Pattern& shared, std::vector<Pattern>& patterns) {
  const std::size_t before = patterns.size();
  for (const bool is_regex : {false, true}) {
    const char* name = is_regex ? "regex" : "text";
    const JsonView texts = member(entry, {name});
    if (!texts.is_null() && !texts.is_array()) {
      return invalid(std::string(name) + " must be a list of texts");
    }
    for (const JsonView text : texts.elements()) {
      if (!text.text() || text.text()->empty() || text.text()->size() > kLongestPattern) {
        return invalid(std::string(name) + " must have texts of 1 to " + std::to_string(kLongestPattern) +
                       " bytes");
      }
      patterns.push_back(shared);
      patterns.back().is_regex = is_regex;
      patterns.back().text = *text.text();
    }
  }
  return patterns.size() == before ? Result<void>(invalid("has neither text nor regex")) : Result<void>();
}

}  // namespace

Result<std::vector<Pattern>> read_patterns(std::string_view yaml, bool is_own) {
  const Result<std::vector<Json>> documents = parse_yaml_documents(yaml);
  if (!documents) {
    return documents.error();
  }
  std::vector<Pattern> patterns;
  for (const JsonView list : *documents) {
    if (!list.is_array()) {
      return invalid("patterns are a list, each with rule, outcome and text");
    }
    std::size_t index = 0;
    for (const JsonView entry : list.elements()) {
      const std::string place = "pattern " + std::to_string(index++);
      if (!entry.is_object()) {
        return invalid(place + ": must be an object with rule, outcome and text");
      }
      Result<Pattern> shared = read_shared(entry);
      if (!shared) {
        return shared.error().within(place);
      }
      shared->is_own = is_own;
      if (const Result<void> added = add_texts(entry, *shared, patterns); !added) {
        return added.error().within(place);
      }
      if (is_own && patterns.size() > kMostOwnPatterns) {
        return Error(ErrorCode::kTooLarge, place + ": there are more than " +
                                               std::to_string(kMostOwnPatterns) + " texts in the file");
      }
    }
  }
  return patterns;
}

std::string_view name_of(Rule rule) {
  return std::find_if(kRules.begin(), kRules.end(), [&](const auto& one) { return one.second == rule; })
      ->first;
}

}  // namespace plimsoll::remediation
