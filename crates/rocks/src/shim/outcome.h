// Converts an answer of the Rust half to RocksDB's status.

#pragma once

#include <rocksdb/io_status.h>

#include <string>

#include "ffi.h"

namespace plimsoll {

inline Bytes View(const std::string& text) { return {text.data(), text.size()}; }
inline Bytes View(const rocksdb::Slice& bytes) { return {bytes.data(), bytes.size()}; }

// Frees the message of `outcome`.
rocksdb::IOStatus Status(Outcome outcome);

}  // namespace plimsoll
