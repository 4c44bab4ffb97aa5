// The position of a decoder or checker within an object, and the errors it has found. A path is a chain of frames
// on the stack, and becomes a string only when there is an error: thousands of tables cost no strings.
// Inside crds/ only. One thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crds/training_job.h"

namespace plimsoll::crds {

class FieldPath {
 public:
  explicit FieldPath(std::string_view name) : name_(name) {}
  FieldPath(const FieldPath& parent, std::string_view name) : parent_(&parent), name_(name) {}
  FieldPath(const FieldPath& parent, std::size_t index) : parent_(&parent), index_(index), is_index_(true) {}

  // "spec.model.dlrm.tables[3].rows"
  std::string text() const {
    if (is_index_) {
      return parent_->text() + "[" + std::to_string(index_) + "]";
    }
    return parent_ == nullptr ? std::string(name_) : parent_->text() + "." + std::string(name_);
  }

 private:
  const FieldPath* parent_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
  bool is_index_ = false;
};

// At most kMaxFieldErrors of them; the rest is dropped.
class FieldErrors {
 public:
  void add(const FieldPath& path, std::string message) {
    if (errors_.size() < kMaxFieldErrors) {
      errors_.push_back({path.text(), std::move(message)});
    }
  }
  void add(const FieldErrors& others) {
    for (const FieldError& error : others.errors_) {
      add(FieldPath(error.field), error.message);
    }
  }
  bool empty() const { return errors_.empty(); }
  const std::vector<FieldError>& list() const { return errors_; }
  std::vector<FieldError> take() && { return std::move(errors_); }

 private:
  std::vector<FieldError> errors_;
};

}  // namespace plimsoll::crds
