#include "remediation/patterns.h"

#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <string>
#include <utility>

namespace plimsoll::remediation {

extern const char* const kPatternsYaml;  // patterns.yaml

namespace {

// What RE2 may take for all patterns together, and for each alone; of each pattern there are up to three expressions. A container's
// text makes them take it, and the operator's container has half a GiB.
constexpr std::int64_t kMemoryOfAll = 32 << 20;
constexpr std::int64_t kMemoryOfOne = 128 << 10;

// Latin1: a log may have bytes that are no UTF-8.
RE2::Options options(std::int64_t memory) {
  RE2::Options chosen(RE2::Latin1);
  chosen.set_case_sensitive(false);
  chosen.set_log_errors(false);
  chosen.set_max_mem(memory);
  return chosen;
}

re2::StringPiece piece(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

class Patterns::Compiled {
 public:
  explicit Compiled(std::vector<Pattern> patterns)
      : patterns_(std::move(patterns)), together_(options(kMemoryOfAll), RE2::UNANCHORED) {}

  Result<void> compile() {
    for (const Pattern& pattern : patterns_) {
      const std::string written = pattern.is_regex ? pattern.text : RE2::QuoteMeta(pattern.text);
      for (const std::string& expression : {written, pattern.with, pattern.unless}) {
        if (Result<void> known = add(expression); !known) {
          return known;
        }
      }
      own_.push_back({.text = expression(written),
                      .with = expression(pattern.with),
                      .unless = expression(pattern.unless)});
      together_.Add(written, nullptr);
    }
    if (!together_.Compile()) {
      return Error(ErrorCode::kTooLarge,
                   "the patterns together are too large: shorten some, or write text instead of regex");
    }
    return {};
  }

  std::vector<PatternMatch> match(std::string_view line) const {
    std::vector<PatternMatch> matches;
    for (const int index : candidates(line)) {
      const Expressions& own = own_[static_cast<std::size_t>(index)];
      re2::StringPiece found;
      if (own.text->Match(piece(line), 0, line.size(), RE2::UNANCHORED, &found, 1) &&
          (own.with == nullptr || RE2::PartialMatch(piece(line), *own.with)) &&
          (own.unless == nullptr || !RE2::PartialMatch(piece(line), *own.unless))) {
        matches.push_back({.pattern = &patterns_[static_cast<std::size_t>(index)],
                           .at = static_cast<std::size_t>(found.data() - line.data())});
      }
    }
    return matches;
  }

  const std::vector<Pattern>& all() const { return patterns_; }

 private:
  struct Expressions {  // of a pattern, in expressions_; null: none
    const RE2* text = nullptr;
    const RE2* with = nullptr;
    const RE2* unless = nullptr;
  };

  const RE2* expression(const std::string& text) const {
    return text.empty() ? nullptr : expressions_.at(text).get();
  }

  Result<void> add(const std::string& expression) {
    std::unique_ptr<const RE2>& known = expressions_[expression];
    if (known == nullptr) {
      known = std::make_unique<const RE2>(expression, options(kMemoryOfOne));
    }
    return known->ok()
               ? Result<void>()
               : Result<void>(invalid("RE2 does not take the expression: " + known->error(), expression));
  }

  // The indices of all that the line may have, rising.
  std::vector<int> candidates(std::string_view line) const {
    std::vector<int> found;
    RE2::Set::ErrorInfo failure{};
    if (!together_.Match(piece(line), &found, &failure) && failure.kind != RE2::Set::kNoError) {
      // The automaton of all exceeds its memory on this line: one after the other.
      found.resize(patterns_.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        found[i] = static_cast<int>(i);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  const std::vector<Pattern> patterns_;
  std::map<std::string, std::unique_ptr<const RE2>> expressions_;
  std::vector<Expressions> own_;  // of each pattern
  RE2::Set together_;
};

Patterns::Patterns(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

const Patterns& Patterns::built_in() {
  static const Patterns known = [] {
    Result<Patterns> made = with_own("");
    assert(made);  // patterns.yaml is a part of the program
    return *std::move(made);
  }();
  return known;
}

Result<Patterns> Patterns::with_own(std::string_view own) {
  Result<std::vector<Pattern>> all = read_patterns(own, true);
  if (!all) {
    return all.error();
  }
  Result<std::vector<Pattern>> built_in = read_patterns(kPatternsYaml, false);
  if (!built_in) {
    return built_in.error();
  }
  all->insert(all->end(), built_in->begin(), built_in->end());
  auto compiled = std::make_shared<Compiled>(*std::move(all));
  if (const Result<void> done = compiled->compile(); !done) {
    return done.error();
  }
  return Patterns(std::move(compiled));
}

std::vector<PatternMatch> Patterns::match(std::string_view line) const {
  return compiled_->match(line);
}

const std::vector<Pattern>& Patterns::all() const {
  return compiled_->all();
}

}  // namespace plimsoll::remediation
