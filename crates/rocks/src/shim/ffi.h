// The C ABI between the two halves of this crate. Its twin is src/ffi.rs: change both together.
//
// RocksDB asks, C++ forwards, Rust answers. Rust never unwinds into C++ and C++ never throws into
// Rust: a failure is an Outcome.

#pragma once

#include <cstddef>
#include <cstdint>

struct rocksdb_column_family_handle_t;
struct rocksdb_env_t;
struct rocksdb_options_t;

namespace plimsoll {

// Objects of the Rust half, opaque to C++.
struct RustFileSystem;
struct RustSequential;
struct RustReadable;
struct RustWritable;
struct RustKeyCounts;

// Bytes of the caller, valid for the length of the call.
struct Bytes {
  const char* data;
  size_t len;
};

enum class Code : uint8_t {
  kOk = 0,
  kNotFound = 1,
  kPathNotFound = 2,
  kIoError = 3,
  kFenced = 5,
  kCorruption = 6,
  kInvalid = 8,
};

// How a call ended. Rust owns the memory of the message: free it with plimsoll_message_free.
struct Outcome {
  char* message;
  size_t message_len;
  Code code;
  bool retryable;
  bool file_scope;
};
static_assert(sizeof(Outcome) == 24);

// Why a file is read or written: RocksDB's io_activity, the caller's timeout, and whether a read of the
// same range returned damaged bytes before.
struct Why {
  uint64_t timeout_micros;  // 0: none
  uint8_t activity;
  bool again;
};
static_assert(sizeof(Why) == 16);

// One read of several. `got` and `outcome` are the answer; fewer bytes than asked for mean the end of
// the file.
struct ReadRequest {
  uint64_t offset;
  char* into;
  size_t len;
  size_t got;
  Outcome outcome;
};
static_assert(sizeof(ReadRequest) == 56);

// How often the records of a block of a table were read of late. `start` is where it begins, or the padding
// before it; `end` is 0 if it is not known.
struct BlockReads {
  uint64_t start;
  uint64_t end;
  uint64_t reads;
};
static_assert(sizeof(BlockReads) == 24);

enum class OpenFor : uint8_t { kCreate = 0, kAppend = 1, kOverwrite = 2 };

// Takes one name of a listing.
using NameSink = void (*)(void* into, Bytes name);

extern "C" {

// --- Rust for C++ -------------------------------------------------------------------------------

void plimsoll_message_free(char* message, size_t len);

// Another reference to `fs`, to be released on its own.
RustFileSystem* plimsoll_fs_retain(RustFileSystem* fs);
void plimsoll_fs_release(RustFileSystem* fs);
Outcome plimsoll_fs_open_sequential(RustFileSystem* fs, Bytes path, RustSequential** file);
Outcome plimsoll_fs_open_readable(RustFileSystem* fs, Bytes path, RustReadable** file);
Outcome plimsoll_fs_open_writable(RustFileSystem* fs, Bytes path, OpenFor how, RustWritable** file);
Outcome plimsoll_fs_exists(RustFileSystem* fs, Bytes path);
Outcome plimsoll_fs_children(RustFileSystem* fs, Bytes path, NameSink sink, void* into);
Outcome plimsoll_fs_remove(RustFileSystem* fs, Bytes path);
Outcome plimsoll_fs_truncate(RustFileSystem* fs, Bytes path, uint64_t len);
Outcome plimsoll_fs_create_dir(RustFileSystem* fs, Bytes path, bool may_exist);
Outcome plimsoll_fs_remove_dir(RustFileSystem* fs, Bytes path);
Outcome plimsoll_fs_is_dir(RustFileSystem* fs, Bytes path, bool* is_dir);
Outcome plimsoll_fs_len(RustFileSystem* fs, Bytes path, uint64_t* len);
Outcome plimsoll_fs_rename(RustFileSystem* fs, Bytes from, Bytes to);
Outcome plimsoll_fs_link(RustFileSystem* fs, Bytes from, Bytes to);
Outcome plimsoll_fs_links(RustFileSystem* fs, Bytes path, uint64_t* count);
Outcome plimsoll_fs_same(RustFileSystem* fs, Bytes one, Bytes other, bool* same);
Outcome plimsoll_fs_lock(RustFileSystem* fs, Bytes path);
Outcome plimsoll_fs_unlock(RustFileSystem* fs, Bytes path);
Outcome plimsoll_fs_free_space(RustFileSystem* fs, uint64_t* bytes);
Outcome plimsoll_fs_sync_file(RustFileSystem* fs, Bytes path);
Outcome plimsoll_fs_flush_names(RustFileSystem* fs);
void plimsoll_fs_info_log(RustFileSystem* fs, uint8_t level, Bytes line);

Outcome plimsoll_sequential_read(RustSequential* file, char* into, size_t len, size_t* got);
Outcome plimsoll_sequential_skip(RustSequential* file, uint64_t count);
void plimsoll_sequential_release(RustSequential* file);

Outcome plimsoll_readable_read(const RustReadable* file, uint64_t offset, char* into, size_t len,
                               Why why, size_t* got);
void plimsoll_readable_read_all(const RustReadable* file, ReadRequest* requests, size_t count,
                                Why why);
uint64_t plimsoll_readable_len(const RustReadable* file);
void plimsoll_readable_release(RustReadable* file);

Outcome plimsoll_writable_append(RustWritable* file, Bytes data, Why why);
Outcome plimsoll_writable_truncate(RustWritable* file, uint64_t len);
Outcome plimsoll_writable_flush(RustWritable* file, Why why);
Outcome plimsoll_writable_sync(RustWritable* file, Why why);
Outcome plimsoll_writable_close(RustWritable* file, Why why);
uint64_t plimsoll_writable_len(const RustWritable* file);
void plimsoll_writable_release(RustWritable* file);

// How often a key was read of late.
uint8_t plimsoll_key_counts_get(const RustKeyCounts* counts, Bytes key);
void plimsoll_key_counts_release(const RustKeyCounts* counts);

// The table that the calling thread builds: its family and level when it begins; when it ends, its
// first and last key, the first keys of its blocks of 256 KiB, from the second on, and its blocks with
// records that were read of late. A level below 0 is unknown.
void plimsoll_table_begun(uint32_t family, int32_t level);
void plimsoll_table_finished(Bytes first, Bytes last, const Bytes* starts, size_t count,
                             uint64_t data_len, const BlockReads* reads, size_t reads_count);

// --- C++ for Rust -------------------------------------------------------------------------------

// An environment over `fs`, which it owns from now on. rocksdb_env_destroy frees both.
rocksdb_env_t* plimsoll_env_new(RustFileSystem* fs);
// Makes every table built with these options report its family, level and keys, and its reads by
// `counts`, which it owns from now on; null if none are counted.
void plimsoll_install_table_range(rocksdb_options_t* options, const RustKeyCounts* counts);
// Whether the keys of a column family are in the order of their bytes.
bool plimsoll_family_is_bytewise(rocksdb_column_family_handle_t* family);
// Whether the structs of RocksDB's C API have the same layout here as in the linked library. Changes
// `options`.
bool plimsoll_layout_holds(rocksdb_options_t* options, rocksdb_env_t* env);

}  // extern "C"
}  // namespace plimsoll
