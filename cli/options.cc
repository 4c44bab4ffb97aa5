#include "cli/options.h"

#include <algorithm>
#include <numeric>

#include "base/json/edit.h"
#include "base/number.h"
#include "base/yaml.h"
#include "cli/command.h"

namespace plimsoll::cli {
namespace {

constexpr unsigned kHelpWidth = 110;
constexpr std::size_t kMaxWord = 64;  // longer ones are cut in messages, and are not a misspelling

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

void print_help(const Help& help, const po::options_description& options, Console& console) {
  console.out << "Usage: " << help.usage << "\n\n" << help.about << "\n\nOptions:\n";
  options.print(console.out);
  console.out << "\nExamples:\n" << help.examples << '\n';
}

int misuse(const Help& help, Console& console, const std::string& message) {
  complain(console, kExitUsage, message);
  console.err << "Usage: " << help.usage << "\nSee its --help for the options.\n";
  return kExitUsage;
}

}  // namespace

std::string closest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  if (word.size() > kMaxWord) {
    return best;
  }
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::optional<int> read_options(const std::vector<std::string>& arguments,
                                const po::options_description& options, const Help& help, Console& console,
                                po::variables_map& values) {
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const std::string& argument) { return argument == "--help" || argument == "-h"; })) {
    po::options_description printed("", kHelpWidth, kHelpWidth / 2);
    for (const auto& option : options.options()) {
      printed.add(option);
    }
    print_help(help, printed, console);
    return kExitDone;
  }
  try {
    namespace style = po::command_line_style;
    const po::positional_options_description nothing;
    po::store(po::command_line_parser(arguments)
                  .options(options)
                  .positional(nothing)
                  .style(style::unix_style & ~style::allow_guessing)
                  .run(),
              values);
    po::notify(values);
  } catch (const po::unknown_option& unknown) {
    std::vector<std::string> known;
    for (const auto& option : options.options()) {
      known.push_back("--" + option->long_name());
    }
    const std::string hint = closest(unknown.get_option_name(), known);
    return misuse(help, console,
                  "unknown option " + unknown.get_option_name() +
                      (hint.empty() ? std::string() : "; did you mean " + hint + "?"));
  } catch (const po::too_many_positional_options_error&) {
    return misuse(help, console, "an argument has no option before it");
  } catch (const std::exception& problem) {
    return misuse(help, console, problem.what());
  }
  return std::nullopt;
}

void add_output_option(po::options_description& options) {
  options.add_options()("output,o", po::value<std::string>()->default_value("table")->value_name("FORMAT"),
                        "table for people, json or yaml for programs");
}

Result<OutputFormat> output_format(const po::variables_map& values) {
  OptionReader options(values);
  const auto format = options.choice<OutputFormat>(
      "output",
      {{"table", OutputFormat::kTable}, {"json", OutputFormat::kJson}, {"yaml", OutputFormat::kYaml}},
      OutputFormat::kTable);
  return options.error() ? Result<OutputFormat>(*options.error()) : format;
}

std::optional<int> read_options(const std::vector<std::string>& arguments,
                                const po::options_description& options, const Help& help, Console& console,
                                po::variables_map& values, OutputFormat& format) {
  if (const std::optional<int> code = read_options(arguments, options, help, console, values)) {
    return code;
  }
  const Result<OutputFormat> given = output_format(values);
  if (!given) {
    return complain(console, kExitUsage, given.error());
  }
  format = *given;
  return std::nullopt;
}

std::string OptionReader::text(const std::string& name, const std::string& absent) const {
  return given(name) ? values_[name].as<std::string>() : absent;
}

std::vector<std::string> OptionReader::texts(const std::string& name) const {
  return given(name) ? values_[name].as<std::vector<std::string>>() : std::vector<std::string>();
}

std::int64_t OptionReader::count(const std::string& name, std::int64_t min, std::int64_t max,
                                 std::int64_t absent) {
  if (!given(name)) {
    return absent;
  }
  const std::optional<std::int64_t> value = parse_number<std::int64_t>(text(name));
  const bool fits = value && *value >= min && *value <= max;
  require(fits,
          "--" + name + " must be a whole number from " + std::to_string(min) + " to " + std::to_string(max),
          text(name));
  return fits ? *value : absent;
}

void OptionReader::require(bool holds, const std::string& message, const std::string& fragment) {
  if (!holds) {
    fail(invalid(message, fragment.substr(0, kMaxWord)));
  }
}

void OptionReader::fail(const Error& error) {
  if (!error_) {
    error_ = error;
  }
}

Json json_list(const std::vector<std::string>& texts) {
  JsonArray list;
  for (const std::string& text : texts) {
    list.append(text);
  }
  return list;
}

void print_answers(Console& console, OutputFormat format, const std::vector<Json>& answers) {
  if (format == OutputFormat::kYaml) {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      console.out << (i == 0 ? "" : "---\n") << write_yaml(answers[i]);
    }
    return;
  }
  JsonArray all;
  for (const Json& answer : answers) {
    all.append(answer);
  }
  console.out << write_json_pretty(answers.size() == 1 ? answers.front() : all.json()) << '\n';
}

}  // namespace plimsoll::cli
