// Puts the file system under RocksDB, through the structs of its C API.

#include <rocksdb/c.h>
#include <rocksdb/comparator.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/version.h>

#include <memory>

#include "ffi.h"
#include "file_system.h"

// The structs below, and the calls that FileSystem overrides, are those of this version. Another may
// add a call that reaches the local disk by default: read its file_system.h, then change the number.
static_assert(ROCKSDB_MAJOR == 11 && ROCKSDB_MINOR == 12, "written for RocksDB 11.12");

// The C API's environment, as db/c.cc has it; no header shows it. `plimsoll_layout_holds` compares.
struct rocksdb_env_t {
  rocksdb::Env* rep;
  bool is_default;
};

// The C API's handle of a column family.
struct rocksdb_column_family_handle_t {
  rocksdb::ColumnFamilyHandle* rep;
  bool immortal;
};

namespace plimsoll {
namespace {

// An environment that owns its file system; its threads and clock are RocksDB's own.
rocksdb_env_t* Own(std::unique_ptr<rocksdb::Env> env) { return new rocksdb_env_t{env.release(), false}; }

// The C API's options begin with the C++ options: an early and a late field must read the same through
// both.
bool OptionsHold(rocksdb_options_t* options) {
  constexpr int kOpenFiles = 54321;
  constexpr uint64_t kSecs = 98765;
  auto& view = *reinterpret_cast<rocksdb::Options*>(options);
  rocksdb_options_set_max_open_files(options, kOpenFiles);
  rocksdb_options_set_periodic_compaction_seconds(options, kSecs);
  return view.max_open_files == kOpenFiles && view.periodic_compaction_seconds == kSecs;
}

bool EnvironmentHolds(rocksdb_options_t* options, rocksdb_env_t* env) {
  auto& view = *reinterpret_cast<rocksdb::Options*>(options);
  rocksdb_options_set_env(options, env);
  const bool ours = view.env == env->rep && !env->is_default;
  rocksdb_env_t* standard = rocksdb_create_default_env();
  const bool theirs = standard->rep == rocksdb::Env::Default() && standard->is_default;
  rocksdb_options_set_env(options, standard);
  rocksdb_env_destroy(standard);
  return ours && theirs;
}

}  // namespace

extern "C" rocksdb_env_t* plimsoll_env_new(RustFileSystem* fs) {
  return Own(rocksdb::NewCompositeEnv(std::make_shared<FileSystem>(fs)));
}

extern "C" bool plimsoll_family_is_bytewise(rocksdb_column_family_handle_t* family) {
  // Reads the number back through the C API: the layouts match only if the two agree.
  return family->rep->GetID() == rocksdb_column_family_handle_get_id(family) &&
         family->rep->GetComparator() == rocksdb::BytewiseComparator();
}

extern "C" bool plimsoll_layout_holds(rocksdb_options_t* options, rocksdb_env_t* env) {
  return OptionsHold(options) && EnvironmentHolds(options, env);
}

}  // namespace plimsoll
