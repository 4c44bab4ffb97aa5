// JsonSelection: which parts of a JSON value to keep, by the names of members. What has no rule is kept
// whole; an empty selection keeps all.
//
//   const JsonSelection slim = JsonSelection()
//                                  .only({}, {"metadata", "status"})
//                                  .without({"metadata"}, {"managedFields", "annotations"})
//                                  .only({"status", "conditions"}, {"type", "status"});
//   PackedJson kept(pod, slim);
//
// A rule selects the members that are kept of the object at a path; for an array there, it holds for every
// object in it. A later rule for the same path replaces the earlier one. Reading from several threads is
// safe.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

class JsonSelection {
 public:
  using Names = std::initializer_list<std::string_view>;

  // Only these members, if they are present.
  JsonSelection& only(Names path, Names members);
  // All members but these.
  JsonSelection& without(Names path, Names members);

  // For what walks a value along with its selection.
  bool keeps(std::string_view member) const;
  // The rules below a member; null: there are none, and it is kept whole.
  const JsonSelection* below(std::string_view member) const;

 private:
  JsonSelection& rule(Names path, bool keeps_named, Names members);

  bool keeps_named_ = false;  // or all others
  std::vector<std::string> named_;
  std::map<std::string, JsonSelection, std::less<>> below_;
};

}  // namespace plimsoll
