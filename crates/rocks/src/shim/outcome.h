// How an answer of the Rust half becomes RocksDB's status.

#pragma once

#include <rocksdb/io_status.h>

#include <string>

#include "ffi.h"

namespace plimsoll {

inline Bytes View(const std::string& text) { return {text.data(), text.size()}; }
inline Bytes View(const rocksdb::Slice& bytes) { return {bytes.data(), bytes.size()}; }

// Takes the message of `outcome` with it.
rocksdb::IOStatus Status(Outcome outcome);

}  // namespace plimsoll
