#include "kube/list_page.h"

#include <optional>
#include <string>

#include "base/json/edit.h"
#include "base/json/split.h"
#include "base/json/view.h"

namespace plimsoll::kube {
namespace {

// Items of built-in types have no kind and apiVersion in a List. Returns both as the beginning of an object's
// text, to be put before an item's members.
std::string missing_names(const Json& list) {
  const std::string kind = text_member(list, {"kind"});
  constexpr std::string_view kSuffix = "List";
  if (!kind.ends_with(kSuffix) || kind.size() == kSuffix.size()) {
    return {};
  }
  return R"({"kind":)" + write_json(kind.substr(0, kind.size() - kSuffix.size())) + R"(,"apiVersion":)" +
         write_json(text_member(list, {"apiVersion"}));
}

bool is_nameless(const JsonView& item) {
  return item.is_object() && !item.member("kind") && !item.member("apiVersion");
}

}  // namespace

Result<Json> read_list_page(std::string_view body, const ItemReader& reader) {
  const std::optional<SplitArray> page = split_array(body, "items");
  Result<Json> list = parse_json(page ? std::string_view(page->rest) : body);
  if (!list) {
    return list.error();
  }
  if (!list->isObject()) {
    return invalid("a List is a JSON object");
  }
  // Only items whose member name contains escapes are left here; Go writes an empty list as null.
  const Json others = member(*list, {"items"});
  JsonEdit rest(*std::move(list));
  rest.root().remove("items");
  list = std::move(rest).take();
  for (const JsonView item : JsonView(others).elements()) {
    reader.take(item);
  }
  const std::string names = missing_names(*list);
  for (const std::string_view text : page ? page->elements : std::vector<std::string_view>()) {
    Result<JsonText> item = JsonText::parse_as_tree(text);
    if (item && !names.empty() && is_nameless(item->root())) {
      const bool is_empty = item->root().members().empty();
      item = JsonText::parse_as_tree(names + (is_empty ? "" : ",") +
                                     std::string(text.substr(text.find('{') + 1)));
    }
    if (!item) {
      return item.error();
    }
    reader.take(item->root());
  }
  return list;
}

}  // namespace plimsoll::kube
