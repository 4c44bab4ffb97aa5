// PackedJson: a JSON value that does not change, in one block of memory: what a cache of many objects keeps.
// It takes a tenth of a tree's memory (base/json/json.h): less than the text, since the names of members are
// numbers of shared words (base/json/shared_words.h), and so are strings such as "True" and "Running".
//
//   PackedJson pod(view);                       // of a tree, a parsed text, or a part of either
//   PackedJson slim(view, selection);           // of some of its members (base/json/selection.h)
//   text_member(*pod, {"spec", "nodeName"});    // read in place, as a JsonView
//   Json changed = pod.tree();                  // a copy to change
//
// A PackedJson is a pointer: copies are of one value, which lives as long as the last of them; views of it
// must not outlive that. It may be null, and is equal to another when both are of one value. Any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "base/json/json.h"
#include "base/json/selection.h"
#include "base/json/view.h"

namespace plimsoll {

class PackedJson {
 public:
  PackedJson() = default;
  PackedJson(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as a pointer's
  explicit PackedJson(const JsonView& value);
  PackedJson(const JsonView& value, const JsonSelection& kept);

  explicit operator bool() const { return block_ != nullptr; }
  // Not of null.
  JsonView operator*() const;
  Json tree() const { return tree_of(**this); }
  std::size_t size() const;  // of the block, in bytes

  friend bool operator==(const PackedJson& one, const PackedJson& other) = default;

 private:
  PackedJson(const JsonView& value, const JsonSelection* kept);

  std::shared_ptr<const char[]> block_;
};

}  // namespace plimsoll
