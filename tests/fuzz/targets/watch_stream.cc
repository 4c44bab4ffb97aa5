// The body of a watch, in pieces: however it is cut, the same events come out, into a cache. The first byte
// says where it is cut.
#include "kube/watch_stream.h"

#include <algorithm>
#include <string>

#include "kube/api_error.h"
#include "kube/object_store.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {
namespace {

struct Watched {
  std::string events;  // all of them, written
  Result<void> ended;
};

Watched watch(std::string_view body, std::size_t piece_size) {
  using namespace plimsoll::kube;
  Watched watched;
  ObjectStore store({{"namespace", index_by_namespace}, {"owner", index_by_owner}});
  const WatchStream::OnEvent on_event = [&](const WatchEvent& event) {
    watched.events += std::to_string(static_cast<int>(event.type)) + write_json(tree_of(event.object)) + "\n";
    const std::string key = key_of(event.object);
    if (event.type == WatchEventType::kDeleted) {
      store.remove(key);
    } else if (event.type != WatchEventType::kBookmark) {
      store.set(key, PackedJson(event.object));
      require(store.find(key) == store.find(key), "an object that was set is found");
    }
  };
  WatchStream stream(on_event);
  while (!body.empty() && watched.ended) {
    const std::string_view piece = body.substr(0, piece_size);
    watched.ended = stream.append(piece);
    body.remove_prefix(piece.size());
  }
  if (watched.ended) {
    watched.ended = stream.finish();
  }
  return watched;
}

}  // namespace

FUZZ_TARGET(watch_stream) {
  if (input.empty()) {
    return;
  }
  const std::size_t piece_size = 1 + static_cast<unsigned char>(input.front()) % 64;
  const std::string_view body = input.substr(1);
  const Watched whole = watch(body, std::max<std::size_t>(1, body.size()));
  const Watched pieces = watch(body, piece_size);
  require(whole.events == pieces.events, "pieces give the same events");
  require(whole.ended.ok() == pieces.ended.ok(), "pieces end the same way");
  (void)kube::error_of_response(500, body);
}

}  // namespace plimsoll::testing
