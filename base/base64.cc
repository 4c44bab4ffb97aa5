#include "base/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cassert>
#include <limits>

namespace plimsoll {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t kMaxText = std::numeric_limits<int>::max();  // OpenSSL counts in int

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string base64_encode(std::string_view bytes) {
  assert(bytes.size() <= kMaxText / 4 * 3);
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL ends it with a NUL
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes_of(bytes),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

Result<std::string> base64_decode(std::string_view text) {
  std::string digits(text);
  std::erase_if(digits, [](char c) { return c == '\n' || c == '\r'; });
  const std::size_t padding = digits.size() - (digits.find_last_not_of('=') + 1);
  if (digits.size() % 4 != 0 || padding > 2 || digits.size() > kMaxText) {
    return invalid("not base64: the length or the padding is wrong");
  }
  // OpenSSL takes '=' anywhere for zero bits, and skips spaces.
  if (const std::size_t wrong = digits.find_first_not_of(kAlphabet); wrong < digits.size() - padding) {
    return invalid("not base64", digits.substr(wrong, 1));
  }
  std::string bytes(digits.size() / 4 * 3, '\0');
  [[maybe_unused]] const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                                      bytes_of(digits), static_cast<int>(digits.size()));
  assert(length == static_cast<int>(bytes.size()));
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace plimsoll
