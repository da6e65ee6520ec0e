#include "files.h"

#include <vector>

#include "outcome.h"

namespace plimsoll {

using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

Why Reason(const IOOptions& options) {
  const auto micros = options.timeout.count();
  return {micros > 0 ? static_cast<uint64_t>(micros) : 0, static_cast<uint8_t>(options.io_activity),
          options.verify_and_reconstruct_read};
}

ReadRequest Ask(uint64_t offset, size_t len, char* into) {
  return {offset, into, len, 0, {nullptr, 0, Code::kOk, false, false}};
}

}  // namespace

IOStatus SequentialFile::Read(size_t n, const IOOptions&, Slice* result, char* scratch,
                              IODebugContext*) {
  size_t got = 0;
  IOStatus status = Status(plimsoll_sequential_read(file_, scratch, n, &got));
  *result = Slice(scratch, got);
  return status;
}

IOStatus SequentialFile::Skip(uint64_t n) { return Status(plimsoll_sequential_skip(file_, n)); }

IOStatus ReadableFile::Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result,
                            char* scratch, IODebugContext*) const {
  size_t got = 0;
  IOStatus status =
      Status(plimsoll_readable_read(file_, offset, scratch, n, Reason(options), &got));
  *result = Slice(scratch, got);
  return status;
}

IOStatus ReadableFile::MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                                 IODebugContext*) {
  std::vector<ReadRequest> asked;
  asked.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    asked.push_back(Ask(requests[i].offset, requests[i].len, requests[i].scratch));
  }
  plimsoll_readable_read_all(file_, asked.data(), count, Reason(options));
  for (size_t i = 0; i < count; ++i) {
    requests[i].result = Slice(asked[i].into, asked[i].got);
    requests[i].status = Status(asked[i].outcome);
  }
  return IOStatus::OK();
}

IOStatus ReadableFile::GetFileSize(uint64_t* result) {
  *result = plimsoll_readable_len(file_);
  return IOStatus::OK();
}

IOStatus WritableFile::Append(const Slice& data, const IOOptions& options, IODebugContext*) {
  return Status(plimsoll_writable_append(file_, View(data), Reason(options)));
}

IOStatus WritableFile::Truncate(uint64_t size, const IOOptions&, IODebugContext*) {
  return Status(plimsoll_writable_truncate(file_, size));
}

IOStatus WritableFile::Flush(const IOOptions& options, IODebugContext*) {
  return Status(plimsoll_writable_flush(file_, Reason(options)));
}

IOStatus WritableFile::Sync(const IOOptions& options, IODebugContext*) {
  return Status(plimsoll_writable_sync(file_, Reason(options)));
}

IOStatus WritableFile::Close(const IOOptions& options, IODebugContext*) {
  return Status(plimsoll_writable_close(file_, Reason(options)));
}

uint64_t WritableFile::GetFileSize(const IOOptions&, IODebugContext*) {
  return plimsoll_writable_len(file_);
}

IOStatus WritableFile::RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) {
  return IOStatus::OK();
}

IOStatus Directory::Fsync(const IOOptions&, IODebugContext*) {
  return Status(plimsoll_fs_flush_names(fs_));
}

IOStatus Directory::Close(const IOOptions&, IODebugContext*) { return IOStatus::OK(); }

}  // namespace plimsoll
