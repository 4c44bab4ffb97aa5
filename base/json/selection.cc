#include "base/json/selection.h"

#include <algorithm>

namespace plimsoll {

JsonSelection& JsonSelection::only(Names path, Names members) {
  return rule(path, true, members);
}

JsonSelection& JsonSelection::without(Names path, Names members) {
  return rule(path, false, members);
}

JsonSelection& JsonSelection::rule(Names path, bool keeps_named, Names members) {
  JsonSelection* here = this;
  for (const std::string_view name : path) {
    here = &here->below_[std::string(name)];
  }
  here->keeps_named_ = keeps_named;
  here->named_.assign(members.begin(), members.end());
  return *this;
}

bool JsonSelection::keeps(std::string_view member) const {
  return (std::find(named_.begin(), named_.end(), member) != named_.end()) == keeps_named_;
}

const JsonSelection* JsonSelection::below(std::string_view member) const {
  const auto found = below_.find(member);
  return found == below_.end() ? nullptr : &found->second;
}

}  // namespace plimsoll
