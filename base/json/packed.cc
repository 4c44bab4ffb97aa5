#include "base/json/packed.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "base/json/packed_format.h"

namespace plimsoll {

PackedJson::PackedJson(const JsonView& value) : PackedJson(value, nullptr) {}

PackedJson::PackedJson(const JsonView& value, const JsonSelection& kept) : PackedJson(value, &kept) {}

PackedJson::PackedJson(const JsonView& value, const JsonSelection* kept) {
  static thread_local std::string packed;
  packed.clear();
  packed::append(value, kept, packed);
  const auto block = std::make_shared_for_overwrite<char[]>(packed.size());
  std::copy(packed.begin(), packed.end(), block.get());
  block_ = block;
}

JsonView PackedJson::operator*() const {
  assert(block_ != nullptr);
  return JsonView(JsonView::Packed{block_.get()});
}

std::size_t PackedJson::size() const {
  return block_ == nullptr ? 0 : static_cast<std::size_t>(packed::behind(block_.get()) - block_.get());
}

}  // namespace plimsoll
