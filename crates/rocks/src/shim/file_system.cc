#include "file_system.h"

#include "files.h"
#include "info_log.h"
#include "outcome.h"

namespace plimsoll {

using rocksdb::FileLock;
using rocksdb::FileOptions;
using rocksdb::FSDirectory;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSSequentialFile;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Logger;

namespace {

// A name that a database of this process has locked.
class Lock final : public FileLock {
 public:
  explicit Lock(const std::string& name) : name(name) {}
  const std::string name;
};

}  // namespace

// --- Files --------------------------------------------------------------------------------------

IOStatus FileSystem::NewSequentialFile(const std::string& fname, const FileOptions&,
                                       std::unique_ptr<FSSequentialFile>* result,
                                       IODebugContext*) {
  RustSequential* file = nullptr;
  IOStatus status = Status(plimsoll_fs_open_sequential(fs_, View(fname), &file));
  result->reset(status.ok() ? new SequentialFile(file) : nullptr);
  return status;
}

IOStatus FileSystem::NewRandomAccessFile(const std::string& fname, const FileOptions&,
                                         std::unique_ptr<FSRandomAccessFile>* result,
                                         IODebugContext*) {
  RustReadable* file = nullptr;
  IOStatus status = Status(plimsoll_fs_open_readable(fs_, View(fname), &file));
  result->reset(status.ok() ? new ReadableFile(file) : nullptr);
  return status;
}

IOStatus FileSystem::OpenWritable(const std::string& fname, const FileOptions& options, OpenFor how,
                                  std::unique_ptr<FSWritableFile>* result) {
  RustWritable* file = nullptr;
  IOStatus status = Status(plimsoll_fs_open_writable(fs_, View(fname), how, &file));
  result->reset(status.ok() ? new WritableFile(file, options) : nullptr);
  return status;
}

IOStatus FileSystem::NewWritableFile(const std::string& fname, const FileOptions& options,
                                     std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  return OpenWritable(fname, options, OpenFor::kCreate, result);
}

IOStatus FileSystem::ReopenWritableFile(const std::string& fname, const FileOptions& options,
                                        std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  return OpenWritable(fname, options, OpenFor::kAppend, result);
}

// A recycled log is overwritten in place, so that a sync has no new length to store.
IOStatus FileSystem::ReuseWritableFile(const std::string& fname, const std::string& old_fname,
                                       const FileOptions& options,
                                       std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  IOStatus status = Status(plimsoll_fs_rename(fs_, View(old_fname), View(fname)));
  return status.ok() ? OpenWritable(fname, options, OpenFor::kOverwrite, result) : status;
}

IOStatus FileSystem::NewDirectory(const std::string& name, const IOOptions&,
                                  std::unique_ptr<FSDirectory>* result, IODebugContext*) {
  bool is_dir = false;
  IOStatus status = Status(plimsoll_fs_is_dir(fs_, View(name), &is_dir));
  if (status.ok() && !is_dir) {
    status = IOStatus::PathNotFound(name, "no such directory");
  }
  result->reset(status.ok() ? new Directory(fs_) : nullptr);
  return status;
}

IOStatus FileSystem::NewLogger(const std::string&, const IOOptions&,
                               std::shared_ptr<Logger>* result, IODebugContext*) {
  *result = std::make_shared<InfoLog>(plimsoll_fs_retain(fs_));
  return IOStatus::OK();
}

// --- Names --------------------------------------------------------------------------------------

IOStatus FileSystem::FileExists(const std::string& fname, const IOOptions&, IODebugContext*) {
  return Status(plimsoll_fs_exists(fs_, View(fname)));
}

IOStatus FileSystem::GetChildren(const std::string& dir, const IOOptions&,
                                 std::vector<std::string>* result, IODebugContext*) {
  result->clear();
  const NameSink add = [](void* into, Bytes name) {
    static_cast<std::vector<std::string>*>(into)->emplace_back(name.data, name.len);
  };
  return Status(plimsoll_fs_children(fs_, View(dir), add, result));
}

IOStatus FileSystem::DeleteFile(const std::string& fname, const IOOptions&, IODebugContext*) {
  return Status(plimsoll_fs_remove(fs_, View(fname)));
}

IOStatus FileSystem::Truncate(const std::string& fname, size_t size, const IOOptions&,
                              IODebugContext*) {
  return Status(plimsoll_fs_truncate(fs_, View(fname), size));
}

IOStatus FileSystem::CreateDir(const std::string& dirname, const IOOptions&, IODebugContext*) {
  return Status(plimsoll_fs_create_dir(fs_, View(dirname), /*may_exist=*/false));
}

IOStatus FileSystem::CreateDirIfMissing(const std::string& dirname, const IOOptions&,
                                        IODebugContext*) {
  return Status(plimsoll_fs_create_dir(fs_, View(dirname), /*may_exist=*/true));
}

IOStatus FileSystem::DeleteDir(const std::string& dirname, const IOOptions&, IODebugContext*) {
  return Status(plimsoll_fs_remove_dir(fs_, View(dirname)));
}

IOStatus FileSystem::IsDirectory(const std::string& path, const IOOptions&, bool* is_dir,
                                 IODebugContext*) {
  return Status(plimsoll_fs_is_dir(fs_, View(path), is_dir));
}

IOStatus FileSystem::GetFileSize(const std::string& fname, const IOOptions&, uint64_t* size,
                                 IODebugContext*) {
  return Status(plimsoll_fs_len(fs_, View(fname), size));
}

// RocksDB needs it for the age of archived logs, and of tables that do not record their own.
IOStatus FileSystem::GetFileModificationTime(const std::string&, const IOOptions&, uint64_t*,
                                             IODebugContext*) {
  return IOStatus::NotSupported("a pool keeps no times");
}

IOStatus FileSystem::RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                                IODebugContext*) {
  return Status(plimsoll_fs_rename(fs_, View(from), View(to)));
}

IOStatus FileSystem::LinkFile(const std::string& from, const std::string& to, const IOOptions&,
                              IODebugContext*) {
  return Status(plimsoll_fs_link(fs_, View(from), View(to)));
}

IOStatus FileSystem::NumFileLinks(const std::string& fname, const IOOptions&, uint64_t* count,
                                  IODebugContext*) {
  return Status(plimsoll_fs_links(fs_, View(fname), count));
}

IOStatus FileSystem::AreFilesSame(const std::string& one, const std::string& other,
                                  const IOOptions&, bool* same, IODebugContext*) {
  return Status(plimsoll_fs_same(fs_, View(one), View(other), same));
}

IOStatus FileSystem::SyncFile(const std::string& fname, const FileOptions&, const IOOptions&, bool,
                              IODebugContext*) {
  return Status(plimsoll_fs_sync_file(fs_, View(fname)));
}

IOStatus FileSystem::LockFile(const std::string& fname, const IOOptions&, FileLock** lock,
                              IODebugContext*) {
  IOStatus status = Status(plimsoll_fs_lock(fs_, View(fname)));
  *lock = status.ok() ? new Lock(fname) : nullptr;
  return status;
}

IOStatus FileSystem::UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) {
  const std::unique_ptr<Lock> held(static_cast<Lock*>(lock));
  return Status(plimsoll_fs_unlock(fs_, View(held->name)));
}

IOStatus FileSystem::GetFreeSpace(const std::string&, const IOOptions&, uint64_t* bytes,
                                  IODebugContext*) {
  return Status(plimsoll_fs_free_space(fs_, bytes));
}

IOStatus FileSystem::GetTestDirectory(const IOOptions& options, std::string* path,
                                      IODebugContext* dbg) {
  *path = "/test";
  return CreateDirIfMissing(*path, options, dbg);
}

IOStatus FileSystem::GetAbsolutePath(const std::string& path, const IOOptions&,
                                     std::string* absolute, IODebugContext*) {
  *absolute = path.starts_with('/') ? path : "/" + path;
  return IOStatus::OK();
}

}  // namespace plimsoll
