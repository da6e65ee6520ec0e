// RocksDB's info log, as lines for the Rust half.

#pragma once

#include <rocksdb/env.h>

#include "ffi.h"

namespace plimsoll {

// Never waits: RocksDB logs while it holds the lock that every write needs.
class InfoLog final : public rocksdb::Logger {
 public:
  // Takes over the caller's reference to `fs`: a logger may outlive its file system.
  explicit InfoLog(RustFileSystem* fs) : fs_(fs) {}
  ~InfoLog() override { plimsoll_fs_release(fs_); }

  void Logv(const char* format, va_list arguments) override;
  void Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) override;
  void LogHeader(const char* format, va_list arguments) override;

 private:
  RustFileSystem* const fs_;
};

}  // namespace plimsoll
