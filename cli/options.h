// How every subcommand reads its arguments, with Boost.Program_options: --help with examples, and hints for mistakes.
// One thread.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/quantity.h"
#include "base/result.h"
#include "base/words.h"
#include "cli/console.h"
#include "crds/enums.h"

namespace plimsoll::cli {

namespace po = boost::program_options;

struct Help {
  const char* usage;     // "plimsoll estimate -f JOB.yaml [options]"
  const char* about;     // one or two paragraphs
  const char* examples;  // lines of commands
};

// Reads the arguments into `values`. Nothing: go on. Otherwise the exit code: the help or a mistake has been printed.
std::optional<int> read_options(const std::vector<std::string>& arguments,
                                const po::options_description& options, const Help& help, Console& console,
                                po::variables_map& values);

enum class OutputFormat { kTable, kJson, kYaml };

// The same for a command with add_output_option(); reads the format too.
std::optional<int> read_options(const std::vector<std::string>& arguments,
                                const po::options_description& options, const Help& help, Console& console,
                                po::variables_map& values, OutputFormat& format);

// "-o, --output" with the three formats; read it back with `output_format`.
void add_output_option(po::options_description& options);
Result<OutputFormat> output_format(const po::variables_map& values);

// The options that were given, read as types. The first wrong value is kept as the error, and each wrong value reads
// as its default: read everything, then look at error() once.
//
//   OptionReader options(values);
//   request.trainers = options.count("trainers", 1, kMaxTrainers);
//   if (options.error()) return complain(console, kExitUsage, *options.error());
class OptionReader {
 public:
  explicit OptionReader(const po::variables_map& values) : values_(values) {}

  bool given(const std::string& name) const { return values_.contains(name); }
  // What was given, else the option's default, else `absent`.
  std::string text(const std::string& name, const std::string& absent = {}) const;
  std::vector<std::string> texts(const std::string& name) const;
  std::int64_t count(const std::string& name, std::int64_t min, std::int64_t max, std::int64_t absent = 1);
  Bytes bytes(const std::string& name) { return take(name, parse_bytes(text(name))); }

  // "host=32Gi,p2p=20Gi": bytes a second of the names in `known`, each at most once; others stay as they are.
  void bandwidths(const std::string& name, const std::vector<std::pair<std::string, Bytes*>>& known);

  // One of a few names, in any case, as kubectl takes them (cli-runtime, PrintFlags.ToPrinter); `absent` must be one of their values.
  template <class T>
  T choice(const std::string& name, const std::vector<std::pair<std::string, T>>& known, const T& absent);
  // The same for the enums of the API.
  template <crds::NamedEnum E>
  E choice(const std::string& name, E absent) {
    for (std::size_t i = 0; given(name) && i < crds::kNames<E>.size(); ++i) {
      if (equal_ignoring_case(text(name), crds::kNames<E>[i])) {
        return static_cast<E>(i);
      }
    }
    return given(name) ? take(name, crds::parse_enum<E>(text(name)), absent) : absent;
  }

  // The value of an option that was parsed elsewhere; an error names the option.
  template <class T>
  T take(const std::string& name, const Result<T>& parsed, const T& otherwise = {}) {
    if (!parsed) {
      fail(parsed.error().within("--" + name));
    }
    return parsed ? *parsed : otherwise;
  }

  void require(bool holds, const std::string& message, const std::string& fragment = {});
  void fail(const Error& error);
  const std::optional<Error>& error() const { return error_; }

 private:
  const po::variables_map& values_;
  std::optional<Error> error_;
};

template <class T>
T OptionReader::choice(const std::string& name, const std::vector<std::pair<std::string, T>>& known,
                       const T& absent) {
  if (!given(name)) {
    return absent;
  }
  std::string names;
  for (const auto& [word, value] : known) {
    if (equal_ignoring_case(word, text(name))) {
      return value;
    }
    names += (names.empty() ? "" : ", ") + word;
  }
  require(false, "--" + name + " must be one of " + names, text(name));
  return absent;
}

Json json_list(const std::vector<std::string>& texts);

// The answers of one command for programs: one as an object, several as a JSON array or as YAML documents.
void print_answers(Console& console, OutputFormat format, const std::vector<Json>& answers);

}  // namespace plimsoll::cli
