// RocksDB's file classes: each forwards to one object of the Rust half, which it owns.

#pragma once

#include <rocksdb/file_system.h>

#include "ffi.h"

namespace plimsoll {

// Read sequentially: logs, at recovery.
class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  explicit SequentialFile(RustSequential* file) : file_(file) {}
  ~SequentialFile() override { plimsoll_sequential_release(file_); }

  rocksdb::IOStatus Read(size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                         char* scratch, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Skip(uint64_t n) override;

 private:
  RustSequential* const file_;
};

// Read at random, by any thread: tables and blob files.
class ReadableFile final : public rocksdb::FSRandomAccessFile {
 public:
  explicit ReadableFile(RustReadable* file) : file_(file) {}
  ~ReadableFile() override { plimsoll_readable_release(file_); }

  rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* dbg) const override;
  rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count,
                              const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetFileSize(uint64_t* result) override;

 private:
  RustReadable* const file_;
};

// Written sequentially.
class WritableFile final : public rocksdb::FSWritableFile {
 public:
  using rocksdb::FSWritableFile::Append;

  WritableFile(RustWritable* file, const rocksdb::FileOptions& options)
      : FSWritableFile(options), file_(file) {}
  ~WritableFile() override { plimsoll_writable_release(file_); }

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  // The Rust half does the locking: RocksDB may append to a log during its sync.
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  // RocksDB would start early writeback here; the gate paces writes instead.
  rocksdb::IOStatus RangeSync(uint64_t offset, uint64_t nbytes, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;

 private:
  RustWritable* const file_;
};

// A prefix of names. It has no bytes; a sync makes the names under it durable.
class Directory final : public rocksdb::FSDirectory {
 public:
  // `fs` outlives it, as a FileSystem outlives its files.
  explicit Directory(RustFileSystem* fs) : fs_(fs) {}

  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;

 private:
  RustFileSystem* const fs_;
};

}  // namespace plimsoll
