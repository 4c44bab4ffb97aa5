#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/json/edit.h"
#include "base/yaml.h"
#include "cli/command.h"

namespace plimsoll::cli {
namespace {

constexpr unsigned kHelpWidth = 110;
constexpr std::size_t kWordLimit = 64;  // longer words are no misspelling of ours

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
  if (word.size() > kWordLimit) {
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
    return misuse(help, console, "an argument stands without an option before it");
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
  const std::string name = values["output"].as<std::string>();
  if (name == "table") {
    return OutputFormat::kTable;
  }
  if (name == "json") {
    return OutputFormat::kJson;
  }
  if (name == "yaml") {
    return OutputFormat::kYaml;
  }
  return invalid("--output must be table, json or yaml", name);
}

std::optional<int> read_options(const std::vector<std::string>& arguments,
                                const po::options_description& options, const Help& help, Console& console,
                                po::variables_map& values, OutputFormat& format) {
  if (const std::optional<int> code = read_options(arguments, options, help, console, values)) {
    return code;
  }
  const Result<OutputFormat> asked = output_format(values);
  if (!asked) {
    return complain(console, kExitUsage, asked.error());
  }
  format = *asked;
  return std::nullopt;
}

Result<std::int64_t> count_option(const po::variables_map& values, const std::string& name,
                                  std::int64_t least, std::int64_t most) {
  const std::string text = values[name].as<std::string>();
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return invalid(
        "--" + name + " must be a whole number from " + std::to_string(least) + " to " + std::to_string(most),
        text.substr(0, kWordLimit));
  }
  return value;
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
