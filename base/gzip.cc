#include "base/gzip.h"

#include <zlib.h>

#include <array>
#include <limits>

namespace plimsoll {
namespace {

// zlib's windowBits for the largest window, plus 16 to speak gzip instead of zlib's own framing (zlib.h).
constexpr int kGzipWindow = 15 + 16;

}  // namespace

bool is_gzip(std::string_view text) {
  return text.size() > 2 && text[0] == '\x1f' && text[1] == '\x8b';
}

Result<std::string> gunzip(std::string_view compressed, Bytes limit) {
  if (compressed.size() > std::numeric_limits<uInt>::max()) {
    return Error(ErrorCode::kTooLarge, "the gzip file exceeds 4 GiB");
  }
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) {
    return Error(ErrorCode::kInternal, "zlib could not be started");
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  std::string content;
  std::array<char, 65536> chunk{};
  int state = Z_OK;
  while (state == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = chunk.size();
    state = inflate(&stream, Z_NO_FLUSH);
    content.append(chunk.data(), chunk.size() - stream.avail_out);
    if (static_cast<std::int64_t>(content.size()) > limit.count) {
      inflateEnd(&stream);
      return Error(ErrorCode::kTooLarge, "the gzip content exceeds " + to_string(limit));
    }
  }
  const bool trailing = stream.avail_in != 0;
  inflateEnd(&stream);
  if (state != Z_STREAM_END || trailing) {
    return invalid("not a whole gzip file");
  }
  return content;
}

std::string gzip(std::string_view text) {
  z_stream stream{};
  std::string compressed;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return compressed;
  }
  compressed.resize(deflateBound(&stream, text.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  deflate(&stream, Z_FINISH);
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

}  // namespace plimsoll
