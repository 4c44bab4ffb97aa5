#include "cli/options.h"

#include <algorithm>

#include "base/json/edit.h"
#include "base/number.h"
#include "base/words.h"
#include "base/yaml.h"
#include "cli/command.h"

namespace plimsoll::cli {
namespace {

constexpr unsigned kHelpWidth = 110;
constexpr std::size_t kMaxWord = 64;  // longer ones are cut in messages

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
    return misuse(
        help, console,
        "unknown option " + unknown.get_option_name() + did_you_mean(unknown.get_option_name(), known));
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

void OptionReader::bandwidths(const std::string& name,
                              const std::vector<std::pair<std::string, Bytes*>>& known) {
  std::string names;
  for (std::size_t i = 0; i < known.size(); ++i) {
    names += (i == 0 ? "" : i + 1 == known.size() ? " and " : ", ") + known[i].first + "=";
  }
  std::vector<bool> read(known.size());
  const std::string list = text(name);
  for (std::string_view rest = list; !rest.empty() && !error();) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const std::size_t equals = entry.find('=');
    std::size_t i = 0;
    while (i < known.size() &&
           (equals == entry.npos || known[i].first != entry.substr(0, equals) || read[i])) {
      ++i;
    }
    if (i == known.size()) {
      std::string form = "--" + name;
      form.append(" takes ").append(names).append(" with bytes a second, each at most once");
      require(false, form, std::string(entry));
      return;
    }
    const Result<Bytes> bytes = parse_bytes(entry.substr(equals + 1));
    require(bytes && bytes->count > 0, "--" + name + ": not a bandwidth in bytes a second, like 12.5Gi",
            std::string(entry));
    *known[i].second = bytes ? *bytes : Bytes{};
    read[i] = true;
  }
}

}  // namespace plimsoll::cli
