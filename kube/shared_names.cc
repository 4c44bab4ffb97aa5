#include "kube/shared_names.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_set>

namespace plimsoll::kube {
namespace {

// The fields of all kinds that an operator caches are some hundreds; labels and annotations add a few.
constexpr std::size_t kMostWords = 4096;
constexpr std::size_t kLongestWord = 63;

class Words {
 public:
  // Lives as long as the process; null when it is not among the words and there is no room.
  const char* find(std::string_view word) {
    if (word.empty() || word.size() > kLongestWord || word.find('\0') != word.npos) {
      return nullptr;
    }
    {
      const std::shared_lock lock(mutex_);
      if (const auto known = words_.find(word); known != words_.end()) {
        return known->c_str();
      }
      if (words_.size() >= kMostWords) {
        return nullptr;
      }
    }
    const std::unique_lock lock(mutex_);
    return words_.size() < kMostWords ? words_.emplace(word).first->c_str() : nullptr;
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  std::shared_mutex mutex_;
  std::unordered_set<std::string, Hash, std::equal_to<>> words_;  // its nodes stay where they are
};

Words& all_words() {
  static Words& words = *new Words;  // never destroyed: objects may outlive main
  return words;
}

// Conditions, phases, reasons, kinds: letters with a capital first, as Kubernetes writes enumerated values.
bool is_enumerated(std::string_view text) {
  return !text.empty() && text.front() >= 'A' && text.front() <= 'Z' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

Json shared_text(const Json& value) {
  const char* begin = nullptr;
  const char* end = nullptr;
  value.getString(&begin, &end);
  const std::string_view text = between(begin, end);
  const char* word = is_enumerated(text) ? all_words().find(text) : nullptr;
  return word != nullptr ? Json(::Json::StaticString(word)) : value;
}

}  // namespace

Json with_shared_names(const Json& value) {
  if (value.isString()) {
    return shared_text(value);
  }
  if (value.isArray()) {
    Json list(::Json::arrayValue);
    for (::Json::ArrayIndex i = 0; i < value.size(); ++i) {
      list.append(with_shared_names(value[i]));
    }
    return list;
  }
  if (!value.isObject()) {
    return value;
  }
  Json object(::Json::objectValue);
  for (auto member = value.begin(); member != value.end(); ++member) {
    if (member->isNull()) {
      continue;
    }
    const char* end = nullptr;
    const char* begin = member.memberName(&end);
    const std::string_view name = between(begin, end);
    const char* word = all_words().find(name);
    Json& place = word != nullptr ? object[::Json::StaticString(word)] : object[std::string(name)];
    place = with_shared_names(*member);
  }
  return object;
}

}  // namespace plimsoll::kube
