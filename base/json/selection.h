// JsonSelection: how much of a JSON value to keep, said by the names of members. What has no rule is kept
// whole; an empty selection keeps all.
//
//   const JsonSelection slim = JsonSelection()
//                                  .only({}, {"metadata", "status"})
//                                  .without({"metadata"}, {"managedFields", "annotations"})
//                                  .only({"status", "conditions"}, {"type", "status"});
//   PackedJson kept(pod, slim);
//
// A rule says of the object at a path which of its members are kept; of an array there, it says so of every
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

  // These members alone, as far as they are there.
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
