// split_array(): the elements of one array of a large JSON object, each as a text, and the object without
// them, so that they can be parsed one at a time and are never in memory as one tree.
//
//   if (std::optional<SplitArray> list = split_array(body, "items")) {
//     parse_json(list->rest);                                  // {"kind":"PodList","items":[]}
//     for (std::string_view element : list->elements) ...      // each to be parsed
//   }
//
// Only brackets, commas and quotes are looked at: malformed JSON is found when the rest and the elements are
// parsed. Pure; any thread. Elements point into the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct SplitArray {
  std::string rest;
  std::vector<std::string_view> elements;
};

// Of the outermost object's first member of that name which is an array, its name written without escapes.
// Nothing: there is none, or the brackets do not match.
std::optional<SplitArray> split_array(std::string_view text, std::string_view member);

}  // namespace plimsoll
