// What every subcommand does with its arguments, on Boost.Program_options: --help with examples, and mistakes
// answered with a hint. One thread.
#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "cli/console.h"

namespace plimsoll::cli {

namespace po = boost::program_options;

struct Help {
  const char* usage;     // "plimsoll estimate -f JOB.yaml [options]"
  const char* about;     // one or two paragraphs
  const char* examples;  // lines of commands
};

// Reads the arguments into `values`. Empty: go on. Else the exit code: the help was printed, or a mistake
// explained on standard error.
std::optional<int> read_options(const std::vector<std::string>& arguments,
                                const po::options_description& options, const Help& help, Console& console,
                                po::variables_map& values);

enum class OutputFormat { kTable, kJson, kYaml };

// The same for a command with add_output_option(), whose value it reads as well.
std::optional<int> read_options(const std::vector<std::string>& arguments,
                                const po::options_description& options, const Help& help, Console& console,
                                po::variables_map& values, OutputFormat& format);

// The word of `known` closest to a misspelt one; empty when none is close.
std::string closest(const std::string& word, const std::vector<std::string>& known);

// "-o, --output" with the three formats; read it back with `output_format`.
void add_output_option(po::options_description& options);
Result<OutputFormat> output_format(const po::variables_map& values);

// The value of an option that must lie within [least, most]. Errors: kInvalid naming the option.
Result<std::int64_t> count_option(const po::variables_map& values, const std::string& name,
                                  std::int64_t least, std::int64_t most);

// The answers of one command for programs: one as an object, several as a JSON array or as YAML documents.
void print_answers(Console& console, OutputFormat format, const std::vector<Json>& answers);

}  // namespace plimsoll::cli
