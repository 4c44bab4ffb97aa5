#include "kube/watch_stream.h"

#include <utility>

#include "base/json/view.h"
#include "kube/api_error.h"

namespace plimsoll::kube {
namespace {

Error too_large() {
  return Error(ErrorCode::kTooLarge, "a watch event is larger than 16 MiB");
}

}  // namespace

Result<void> WatchStream::append(std::string_view piece) {
  for (std::size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
    std::string_view line = piece.substr(0, end);
    if (!incomplete_.empty()) {
      line = incomplete_.append(line);
    }
    if (Result<void> handled = deliver(line); !handled) {
      return handled;
    }
    incomplete_.clear();
    piece.remove_prefix(end + 1);
  }
  if (incomplete_.size() + piece.size() > kWatchLineLimit) {
    return too_large();
  }
  incomplete_.append(piece);
  return {};
}

Result<void> WatchStream::finish() {
  return deliver(std::exchange(incomplete_, {}));
}

Result<void> WatchStream::deliver(std::string_view line) const {
  if (line.size() > kWatchLineLimit) {
    return too_large();
  }
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
    return {};
  }
  const Result<JsonText> parsed = JsonText::parse_as_tree(line);
  if (!parsed) {
    return Error(ErrorCode::kInternal, "a watch event is not JSON: " + parsed.error().message,
                 std::string(line.substr(0, 40)));
  }
  const JsonView root = parsed->root();
  const std::string type = text_member(root, {"type"});
  const JsonView object = member(root, {"object"});
  if (type == "ERROR") {
    return error_of_status(tree_of(object));
  }
  static constexpr std::pair<const char*, WatchEventType> kTypes[] = {
      {"ADDED", WatchEventType::kAdded},
      {"MODIFIED", WatchEventType::kModified},
      {"DELETED", WatchEventType::kDeleted},
      {"BOOKMARK", WatchEventType::kBookmark}};
  for (const auto& [name, value] : kTypes) {
    if (type == name && object.is_object()) {
      on_event_({value, object});
      return {};
    }
  }
  if (text_member(root, {"kind"}) == "Status") {
    return error_of_status(tree_of(root));  // a response with status 200 that holds an error
  }
  return Error(ErrorCode::kInternal, "a watch event has an unknown type", type.substr(0, 40));
}

}  // namespace plimsoll::kube
