// JSON by both readers, which must agree; written and read again; packed; split.
#include "base/json/json.h"

#include <string>

#include "base/json/packed.h"
#include "base/json/split.h"
#include "base/json/view.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(json) {
  const Result<Json> tree = parse_json(input);
  const Result<JsonText> text = JsonText::parse_as_tree(input);
  require(tree.ok() == text.ok(), "both readers take the same texts");
  (void)JsonText::parse(input);
  (void)split_array(input, "items");
  if (!tree) {
    return;
  }
  require(JsonView(*tree) == text->root(), "both readers read the same value");
  const std::string written = write_json(*tree);
  const Result<Json> again = parse_json(written);
  require(again.ok(), "what was written can be read");
  require(write_json(*again) == written, "what was written is read as it was");
  const PackedJson packed(text->root());
  require(*packed == JsonView(*tree), "a packed value is that value");
}

}  // namespace plimsoll::testing
