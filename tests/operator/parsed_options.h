// The options of a process as its command line sets them.
//
//   const PolicyOptions options = parsed<PolicyOptions>({"--advice-only=true"});
#pragma once

#include <boost/program_options/parsers.hpp>
#include <boost/program_options/variables_map.hpp>
#include <string>
#include <vector>

namespace plimsoll::testing {

// Options are variables that `describe` binds. Throws what Boost throws for a wrong command line.
template <class Options>
Options parsed(const std::vector<std::string>& arguments) {
  Options options;
  const auto description = describe(options);
  boost::program_options::variables_map values;
  store(boost::program_options::command_line_parser(arguments).options(description).run(), values);
  notify(values);
  return options;
}

}  // namespace plimsoll::testing
