// read_list_page(): reads one response to a LIST and passes its items on one by one, since the tree of a
// large list takes ten times the memory of its text.
//
//   Result<Json> list = read_list_page(body, {.begin = clear, .take = keep});   // the List without its items
//
// Items that lack kind and apiVersion, as those of built-in types do, get them from the List's. Pure; any
// thread.
#pragma once

#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "kube/client.h"

namespace plimsoll::kube {

// Calls `reader.take` only; the caller calls `begin`. Errors: kInvalid when the body is not a JSON object or
// an item is not JSON; by then the reader may have some items.
Result<Json> read_list_page(std::string_view body, const ItemReader& reader);

}  // namespace plimsoll::kube
