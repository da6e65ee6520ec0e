#include "info_log.h"

#include <cstdarg>
#include <cstdio>

#include "outcome.h"

namespace plimsoll {

using rocksdb::InfoLogLevel;

// Longer lines, which are statistics tables, are cut: the buffer is on the stack.
constexpr size_t kLineBytesMax = 2048;

void InfoLog::Logv(const char* format, va_list arguments) {
  Logv(InfoLogLevel::INFO_LEVEL, format, arguments);
}

void InfoLog::Logv(InfoLogLevel level, const char* format, va_list arguments) {
  if (level < GetInfoLogLevel()) {
    return;
  }
  char line[kLineBytesMax];
  const int wanted = vsnprintf(line, sizeof(line), format, arguments);
  if (wanted > 0) {
    const auto len = static_cast<size_t>(wanted);
    plimsoll_fs_info_log(fs_, level, {line, len < sizeof(line) ? len : sizeof(line) - 1});
  }
}

void InfoLog::LogHeader(const char* format, va_list arguments) {
  Logv(InfoLogLevel::HEADER_LEVEL, format, arguments);
}

}  // namespace plimsoll
