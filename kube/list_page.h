// read_list_page(): one answer to a LIST, its items handed out one by one, since a tree of a large list takes
// ten times its text.
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

// Calls `reader.take` alone; `begin` is the caller's. Errors: kInvalid, when the body is no JSON object or an
// item is no JSON; some items may have been handed out by then.
Result<Json> read_list_page(std::string_view body, const ItemReader& reader);

}  // namespace plimsoll::kube
