#include "estimator/speed/embedded_table.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace plimsoll::estimator::inline speed {

std::vector<std::vector<std::string>> read_table(std::string_view csv) {
  std::vector<std::vector<std::string>> rows;
  std::size_t columns = 0;
  while (!csv.empty()) {
    const std::size_t end = std::min(csv.find('\n'), csv.size());
    std::string_view line = csv.substr(0, end);
    csv.remove_prefix(std::min(end + 1, csv.size()));
    if (line.empty() || line.starts_with('#')) {
      continue;
    }
    std::vector<std::string> fields;
    for (std::size_t comma = line.find(','); comma != std::string_view::npos; comma = line.find(',')) {
      fields.emplace_back(line.substr(0, comma));
      line.remove_prefix(comma + 1);
    }
    fields.emplace_back(line);
    if (columns == 0) {
      columns = fields.size();
      continue;
    }
    if (fields.size() != columns) {
      std::fprintf(stderr, "estimator/speed: a row with %zu fields instead of %zu\n", fields.size(), columns);
      std::abort();
    }
    rows.push_back(std::move(fields));
  }
  return rows;
}

double number_in(const std::string& field) {
  return field.empty() ? 0 : std::strtod(field.c_str(), nullptr);
}

}  // namespace plimsoll::estimator::speed
