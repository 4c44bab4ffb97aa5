// An answer to a LIST: split into items, it is what its JSON is.
#include "kube/list_page.h"

#include "base/json/view.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(list_page) {
  Json items(::Json::arrayValue);
  const Result<Json> list = kube::read_list_page(
      input, {.begin = [] {}, .take = [&](const JsonView& item) { items.append(tree_of(item)); }});
  const Result<Json> whole = parse_json(input);
  require(!list || list->isObject(), "a List is an object");
  if (whole && whole->isObject()) {
    require(list.ok(), "a JSON object can be read as a List");
    const Json& expected = member(*whole, {"items"});
    require(!expected.isArray() || expected.size() == items.size(), "all items are handed out");
  }
}

}  // namespace plimsoll::testing
