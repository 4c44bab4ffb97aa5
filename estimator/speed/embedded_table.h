// read_table(): the rows of a table that is compiled into the program (cards.csv, attention.csv). The first line that is no
// comment names the columns.
//
//   for (const std::vector<std::string>& row : read_table(text)) row[0];
//
// Aborts on a row with another number of fields: the tables are part of the program. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::estimator::inline speed {

std::vector<std::vector<std::string>> read_table(std::string_view csv);
// 0 for an empty field.
double number_in(const std::string& field);

}  // namespace plimsoll::estimator::speed
