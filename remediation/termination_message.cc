#include "remediation/termination_message.h"

#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "remediation/log_lines.h"
#include "remediation/out_of_memory_figures.h"

namespace plimsoll::remediation {
namespace {

constexpr std::string_view kRootCause = "Root Cause (first observed failure)";

// Python's own classes that only a mistake in the program raises, whatever their messages speak of.
constexpr std::array<std::string_view, 17> kMistakes = {
    "TypeError",          "NameError",         "AttributeError", "ImportError",       "ModuleNotFoundError",
    "SyntaxError",        "IndentationError",  "TabError",       "UnboundLocalError", "NotImplementedError",
    "ZeroDivisionError",  "FileNotFoundError", "IndexError",     "KeyError",          "UnicodeDecodeError",
    "UnicodeEncodeError", "IsADirectoryError"};

// Memory, devices, timeouts, peers and connections.
const RE2& words_of_the_surroundings() {
  static const RE2 words(
      R"(memory|\boom\b|allocat|device|\bgpus?\b|cuda|\bhip\b|\b[xnht]pus?\b|nccl|rccl|\bgloo\b|\bmpi\b|\bucx\b|cudnn|cublas|)"
      R"(time-?out|timed out|deadline|heartbeat|\bpeers?\b|barrier|rendezvous|\bconnect(ions?|ing)?\b|disconnect|)"
      R"(\bsockets?\b|network is|network error|unavailable|unreachable|unresponsive)",
      [] {
        RE2::Options options(RE2::Latin1);
        options.set_case_sensitive(false);
        return options;
      }());
  return words;
}

bool has(std::string_view text, const RE2& expression) {
  return RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), expression);
}

// "Killed" of a shell in its forms: alone, and "run.sh: line 3:    17 Killed      python train.py".
bool shell_reports_a_kill(std::string_view body) {
  if (body == "Killed") {
    return true;
  }
  const std::size_t at = body.find(" Killed");
  const std::string_view before = body.substr(0, at == body.npos ? 0 : at);
  return before.find("line ") != before.npos && before.back() >= '0' && before.back() <= '9';
}

// A dotted name: of a class that a library defines, and not Python itself or the program's main file.
bool is_of_a_library(std::string_view exception) {
  return exception.find('.') != exception.npos && !exception.starts_with("__main__.") &&
         !exception.starts_with("builtins.");
}

std::string description(const Pattern& pattern) {
  std::string text = pattern.is_own ? "the cluster's own pattern" : "pattern";
  text += " \"" + pattern.text + "\"";
  if (!pattern.library.empty()) {
    text += " of " + pattern.library;
  }
  return pattern.versions.empty() ? text : text + " " + pattern.versions;
}

class Message {
 public:
  Message(std::string_view text, const Patterns& patterns)
      : text_(without_terminal_codes(text)), lines_(log_lines(text_)), exceptions_(exceptions_in(lines_)) {
    matches_.reserve(lines_.size());
    for (const LogLine& line : lines_) {
      matches_.push_back(patterns.match(line.text));
      if (first_of(matches_.size() - 1, {Rule::kHarmless}) != nullptr) {
        matches_.back().clear();
      }
    }
    for (std::size_t line = 0; line < lines_.size(); ++line) {
      add_claim(line);
    }
    sort_exceptions();
  }

  std::vector<Diagnosis> diagnose() const {
    std::vector<Diagnosis> found;
    if (std::optional<Diagnosis> decided = deciding()) {
      found.push_back(*std::move(decided));
    }
    for (const Claim& claim : claims_) {
      add_other(diagnosis(claim), found);
    }
    for (const Judged& one : judged_) {
      add_other(diagnosis(one), found);
    }
    if (const std::optional<Judged> lost = lost_peer(); lost && !found.empty()) {
      add_other(diagnosis(*lost), found);
    }
    return found;
  }

 private:
  // A line that names a cause.
  struct Claim {
    Outcome outcome = Outcome::kUnknown;
    std::size_t line = 0;
    std::size_t at = 0;  // in the line
    bool error = false;  // it ended a process, and is not only mentioned
    bool shared_memory = false;
    std::string because{};
  };

  // An exception, or another line that proves less than a cause.
  struct Judged {
    Priority priority = Priority::kException;
    Outcome outcome = Outcome::kUnknown;
    std::size_t line = 0;
    std::string because{};
  };

  static void add_other(Diagnosis one, std::vector<Diagnosis>& found) {
    const bool known = std::any_of(found.begin(), found.end(), [&](const Diagnosis& other) {
      return other.line == one.line && other.outcome == one.outcome;
    });
    if (!known && found.size() < kMostDiagnoses) {
      found.push_back(std::move(one));
    }
  }

  std::optional<Diagnosis> deciding() const {
    if (const Claim* claim = first_claim()) {
      return diagnosis(*claim);
    }
    if (const std::optional<Judged> killed = killed_process()) {
      return diagnosis(*killed);
    }
    if (const Judged* program = last_of(Priority::kException, true)) {
      return diagnosis(*program);
    }
    if (const Judged* unclear = last_of(Priority::kException, false)) {
      return diagnosis(*unclear);
    }
    if (const std::optional<int> code = exit_code_of_root_cause();
        code && (*code == 2 || *code == 126 || *code == 127)) {
      return Diagnosis{
          .priority = Priority::kException,
          .outcome = Outcome::kUserError,
          .line = "torchrun: the first process that failed has exit code " + std::to_string(*code),
          .because = "a shell's exit code for wrong usage, what is not executable, or what is not found"};
    }
    if (const std::optional<Judged> said = said_without_a_name()) {
      return diagnosis(*said);
    }
    const auto peer = std::find_if(judged_.begin(), judged_.end(),
                                   [](const Judged& one) { return one.priority == Priority::kConsequence; });
    if (peer != judged_.end()) {
      return diagnosis(*peer);
    }
    const std::optional<Judged> lost = lost_peer();
    return lost ? std::optional(diagnosis(*lost)) : std::nullopt;
  }

  // The line is part of an exception's message, or of what C++'s terminate() prints.
  bool is_error(std::size_t line) const {
    const auto after =
        std::upper_bound(exceptions_.begin(), exceptions_.end(), line,
                         [](std::size_t at, const LoggedException& one) { return at < one.line; });
    return (after != exceptions_.begin() && line < std::prev(after)->end) ||
           lines_[line].body.starts_with("what():");
  }

  // The first match of the line with one of the rules, or null.
  const PatternMatch* first_of(std::size_t line, std::initializer_list<Rule> rules) const {
    for (const PatternMatch& match : matches_[line]) {
      if (std::find(rules.begin(), rules.end(), match.pattern->rule) != rules.end()) {
        return &match;
      }
    }
    return nullptr;
  }

  // A frame of the traceback that ends at the line has one of the texts.
  bool comes_from(std::size_t line, std::initializer_list<std::string_view> texts) const {
    constexpr std::size_t kFrames = 12;
    for (std::size_t i = line; i-- > 0 && line - i <= kFrames;) {
      const std::string above = lower_case(lines_[i].text);
      if (above.find("traceback (most recent call last)") != std::string::npos) {
        return false;
      }
      if (has_any(above, texts)) {
        return true;
      }
    }
    return false;
  }

  // Whether the exhausted memory was pinned memory of the host: the driver has one error for both.
  bool is_pinned_memory(std::size_t line) const {
    const std::string lower = lower_case(lines_[line].text);
    if (lower.find("tried to allocate") != std::string::npos) {
      return false;
    }
    return has_any(lower, {"cachinghost", "hostalloc", "mallochost", "host alloc", "bytes on host:"}) ||
           comes_from(line, {".pin_memory(", "in pin_memory", "pin_memory=true", "pin memory thread"});
  }

  bool is_last(std::size_t line) const {
    return std::all_of(
        lines_.begin() + static_cast<std::ptrdiff_t>(line) + 1, lines_.end(),
        [](const LogLine& rest) { return rest.text.find_first_not_of(" \t\r") == rest.text.npos; });
  }

  // A message that may only mention what it names counts on the last line, and as an error.
  bool is_remark(const PatternMatch& match, std::size_t line) const {
    return match.pattern->rule == Rule::kMention && !is_last(line) && !is_error(line) &&
           !has_any(lower_case(lines_[line].text.substr(0, match.at)),
                    {"error", "fail", "fatal", "critical"});
  }

  void add_claim(std::size_t line) {
    for (const PatternMatch& match : matches_[line]) {
      const Rule rule = match.pattern->rule;
      if ((rule != Rule::kProof && rule != Rule::kMention) || is_remark(match, line)) {
        continue;
      }
      const bool of_host = match.pattern->outcome == Outcome::kCudaOutOfMemory && is_pinned_memory(line);
      claims_.push_back({.outcome = of_host ? Outcome::kHostOutOfMemory : match.pattern->outcome,
                         .line = line,
                         .at = match.at,
                         .error = is_error(line),
                         .shared_memory = match.pattern->shared_memory,
                         .because = description(*match.pattern) + (of_host ? ", for pinned memory" : "")});
      return;
    }
    const std::size_t full = lines_[line].text.find("No space left on device");
    if (full != std::string_view::npos && is_error(line) &&
        comes_from(line, {"semlock", "_share_fd", "shared_memory", "_new_shared"})) {
      claims_.push_back({.outcome = Outcome::kHostOutOfMemory,
                         .line = line,
                         .at = full,
                         .error = true,
                         .shared_memory = true,
                         .because = "a full file system, where Python makes a file in /dev/shm"});
    }
  }

  void sort_exceptions() {
    for (const LoggedException& one : exceptions_) {
      const auto claim = std::lower_bound(claims_.begin(), claims_.end(), one.line,
                                          [](const Claim& a, std::size_t line) { return a.line < line; });
      if ((claim == claims_.end() || claim->line >= one.end) &&
          first_of(one.line, {Rule::kLauncher}) == nullptr) {
        judged_.push_back(judge(one));
      }
    }
  }

  Judged judge(const LoggedException& exception) const {
    const PatternMatch* decides = nullptr;
    bool speaks = false;
    for (std::size_t line = exception.line; line < exception.end; ++line) {
      for (const PatternMatch& match : matches_[line]) {
        const bool may = match.pattern->rule == Rule::kException || match.pattern->rule == Rule::kConsequence;
        // Of the order of the file, which is that of the patterns in memory.
        if (may && (decides == nullptr || match.pattern < decides->pattern)) {
          decides = &match;
        }
      }
      speaks = speaks || has(lines_[line].text, words_of_the_surroundings());
    }
    if (decides != nullptr) {
      const Pattern& pattern = *decides->pattern;
      return {.priority = pattern.rule == Rule::kException ? Priority::kException : Priority::kConsequence,
              .outcome = pattern.outcome,
              .line = exception.line,
              .because = description(pattern)};
    }
    Judged judged{.line = exception.line};
    if (std::find(kMistakes.begin(), kMistakes.end(), exception.name) != kMistakes.end()) {
      judged.outcome = Outcome::kUserError;
      judged.because = "only a mistake in the program raises it";
    } else if (is_of_a_library(exception.name)) {
      judged.because = "an exception of a library's own class, which no pattern knows";
    } else if (speaks) {
      judged.because =
          "an exception that no pattern knows, and that speaks of memory, devices, timeouts or peers";
    } else {
      judged.outcome = Outcome::kUserError;
      judged.because = "the program's own exception, which speaks of nothing outside of it";
    }
    return judged;
  }

  // The last exception of that priority which is the program's own fault, or may not be; or null.
  const Judged* last_of(Priority priority, bool user_error) const {
    const auto found = std::find_if(judged_.rbegin(), judged_.rend(), [&](const Judged& one) {
      return one.priority == priority && (one.outcome == Outcome::kUserError) == user_error;
    });
    return found == judged_.rend() ? nullptr : &*found;
  }

  // The line that reports a killed process, unless an earlier exception explains the kill. torchrun kills the
  // others when one has failed: then only the process that it names as root cause counts.
  std::optional<Judged> killed_process() const {
    std::size_t root = 0;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      root = lines_[i].body.starts_with(kRootCause) ? i : root;
    }
    const Judged* program = last_of(Priority::kException, true);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const PatternMatch* killed = first_of(i, {Rule::kKilled});
      const bool other = i < root && lines_[i].text.find("eceived by PID") != std::string_view::npos;
      if ((killed != nullptr && !other) || shell_reports_a_kill(lines_[i].body)) {
        if (program != nullptr && program->line < i) {
          return std::nullopt;
        }
        return Judged{.priority = Priority::kCause,
                      .outcome = killed != nullptr ? killed->pattern->outcome : Outcome::kHostOutOfMemory,
                      .line = i,
                      .because = killed != nullptr ? description(*killed->pattern)
                                                   : "a shell says that its child was killed"};
      }
    }
    return std::nullopt;
  }

  // The last text of an exception's message, where the text has no exception: its name may be cut off.
  std::optional<Judged> said_without_a_name() const {
    for (std::size_t i = exceptions_.empty() ? lines_.size() : 0; i-- > 0;) {
      if (const PatternMatch* match = first_of(i, {Rule::kException})) {
        return Judged{.outcome = match->pattern->outcome, .line = i, .because = description(*match->pattern)};
      }
    }
    return std::nullopt;
  }

  // The first line of a lost peer, of an exception or not.
  std::optional<Judged> lost_peer() const {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (const PatternMatch* match = first_of(i, {Rule::kConsequence})) {
        return Judged{.priority = Priority::kConsequence,
                      .outcome = match->pattern->outcome,
                      .line = i,
                      .because = description(*match->pattern)};
      }
    }
    return std::nullopt;
  }

  // "  exitcode  : 2 (pid: 118)" under torchrun's root cause.
  std::optional<int> exit_code_of_root_cause() const {
    bool in_root = false;
    for (const LogLine& line : lines_) {
      in_root = in_root || line.body.starts_with(kRootCause);
      const std::size_t colon = line.body.find(": ");
      if (in_root && line.body.starts_with("exitcode") && colon != line.body.npos) {
        int code = 0;
        const char* begin = line.body.data() + colon + 2;
        const char* end = line.body.data() + line.body.size();
        return std::from_chars(begin, end, code).ec == std::errc() ? std::optional(code) : std::nullopt;
      }
    }
    return std::nullopt;
  }

  Diagnosis diagnosis(const Judged& judged) const {
    return {.priority = judged.priority,
            .outcome = judged.outcome,
            .line = line_at(lines_[judged.line].text, 0),
            .because = judged.because};
  }

  Diagnosis diagnosis(const Claim& claim) const {
    Diagnosis found{.priority = Priority::kCause,
                    .outcome = claim.outcome,
                    .line = line_at(lines_[claim.line].text, claim.at),
                    .because = claim.because,
                    .shared_memory = claim.shared_memory};
    if (claim.outcome == Outcome::kCudaOutOfMemory) {
      const std::string_view text = text_;
      found.out_of_memory = parse_out_of_memory_figures(
          text.substr(static_cast<std::size_t>(lines_[claim.line].text.data() - text.data())));
    }
    return found;
  }

  // The first claim that ended a process; else the first that is mentioned, unless an exception of the
  // program follows it. An out-of-memory of the GPU may also print errors of host memory, so it comes first.
  const Claim* first_claim() const {
    const Judged* program = last_of(Priority::kException, true);
    const Claim* first = nullptr;
    for (const Claim& claim : claims_) {
      if (!claim.error && program != nullptr && program->line > claim.line) {
        continue;
      }
      const auto rank = [](const Claim& one) {
        return std::pair(!one.error, one.outcome != Outcome::kCudaOutOfMemory);
      };
      if (first == nullptr || rank(claim) < rank(*first)) {
        first = &claim;
      }
    }
    return first;
  }

  const std::string text_;
  const std::vector<LogLine> lines_;
  const std::vector<LoggedException> exceptions_;
  std::vector<std::vector<PatternMatch>> matches_;  // of each line; none of a harmless one
  std::vector<Claim> claims_;                       // by line
  std::vector<Judged> judged_;                      // exceptions that no claim explains, by line
};

}  // namespace

std::vector<Diagnosis> read_termination_message(std::string_view text, const Patterns& patterns) {
  return Message(text, patterns).diagnose();
}

}  // namespace plimsoll::remediation
