// SmallList: a list that is usually short, such as the inputs of an operator or the dimensions of a shape. Up
// to `kInline` elements are stored in the list itself; a longer list is stored on the heap.
//
//   SmallList<TensorId, 5> inputs = {x, weight};
//   inputs.push_back(bias);
//   for (TensorId each : inputs) ...
//
// A value type for trivially copyable elements. Misuse (an index out of range) fails an assertion.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <vector>

namespace plimsoll::estimator::inline spec {

template <class T, std::size_t kInline>
class SmallList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SmallList() = default;
  SmallList(std::initializer_list<T> elements) : SmallList(elements.begin(), elements.end()) {}
  SmallList(const std::vector<T>& elements)  // NOLINT(google-explicit-constructor): converts like a literal
      : SmallList(elements.data(), elements.data() + elements.size()) {}
  SmallList(const SmallList& other)
      : size_(other.size_),
        inline_(other.inline_),
        longer_(other.longer_ ? std::make_unique<std::vector<T>>(*other.longer_) : nullptr) {}
  SmallList(SmallList&&) noexcept = default;
  SmallList& operator=(const SmallList& other) { return *this = SmallList(other); }
  SmallList& operator=(SmallList&&) noexcept = default;
  ~SmallList() = default;

  void push_back(T element) {
    if (size_ < kInline) {
      inline_[size_++] = element;
      return;
    }
    if (!longer_) {
      longer_ = std::make_unique<std::vector<T>>(inline_.begin(), inline_.end());
    }
    longer_->push_back(element);
    ++size_;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return longer_ ? longer_->data() : inline_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return longer_ ? longer_->data() : inline_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](std::size_t i) {
    assert(i < size_);
    return begin()[i];
  }
  const T& operator[](std::size_t i) const {
    assert(i < size_);
    return begin()[i];
  }
  const T& front() const { return (*this)[0]; }
  const T& back() const { return (*this)[size_ - 1]; }
  T& back() { return (*this)[size_ - 1]; }

 private:
  SmallList(const T* first, const T* last) {
    for (; first != last; ++first) {
      push_back(*first);
    }
  }

  std::uint32_t size_ = 0;
  std::array<T, kInline> inline_{};
  std::unique_ptr<std::vector<T>> longer_;  // all elements, if there are more than kInline
};

}  // namespace plimsoll::estimator::spec
