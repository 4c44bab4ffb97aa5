#include "base/base64.h"

#include <array>
#include <cstdint>

namespace plimsoll {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> make_values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}
constexpr std::array<std::int8_t, 256> kValues = make_values();

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = bytes.size() - i;
    std::uint32_t group = static_cast<unsigned char>(bytes[i]) << 16;
    group |= left > 1 ? static_cast<unsigned char>(bytes[i + 1]) << 8 : 0;
    group |= left > 2 ? static_cast<unsigned char>(bytes[i + 2]) : 0;
    text += kAlphabet[group >> 18];
    text += kAlphabet[(group >> 12) & 63];
    text += left > 1 ? kAlphabet[(group >> 6) & 63] : '=';
    text += left > 2 ? kAlphabet[group & 63] : '=';
  }
  return text;
}

Result<std::string> base64_decode(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t group = 0;
  int characters = 0;
  int padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      continue;
    }
    const std::int8_t value = kValues[static_cast<unsigned char>(c)];
    if (c == '=') {
      ++padding;
    } else if (value < 0 || padding > 0) {
      return invalid("not base64", std::string(1, c));
    }
    group = group << 6 | (value < 0 ? 0U : static_cast<std::uint32_t>(value));
    if (++characters % 4 == 0) {
      bytes += static_cast<char>(group >> 16);
      bytes += static_cast<char>(group >> 8);
      bytes += static_cast<char>(group);
      group = 0;
    }
  }
  if (characters % 4 != 0 || padding > 2) {
    return invalid("not base64: the length or the padding is wrong");
  }
  bytes.resize(bytes.size() - static_cast<std::size_t>(padding));
  return bytes;
}

}  // namespace plimsoll
