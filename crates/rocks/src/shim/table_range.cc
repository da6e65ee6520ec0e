// Watches a table being built, and tells the Rust half what placement needs, its family, level and keys,
// and how often its records were read of late.

#include <rocksdb/comparator.h>
#include <rocksdb/options.h>
#include <rocksdb/table_properties.h>

#include <memory>
#include <string>
#include <vector>

#include "ffi.h"
#include "outcome.h"

namespace plimsoll {

using rocksdb::EntryType;
using rocksdb::SequenceNumber;
using rocksdb::Slice;
using rocksdb::TablePropertiesCollector;
using rocksdb::TablePropertiesCollectorFactory;
using rocksdb::UserCollectedProperties;

namespace {

// The unit of an operation and of heat: policy::heat::Block::BYTES.
constexpr uint64_t kBlockBytes = 256 * 1024;

// Adds nothing to the table itself.
class KeyRange final : public TablePropertiesCollector {
 public:
  // Without `counts`, no block has reads. They outlive the table.
  explicit KeyRange(const RustKeyCounts* counts) : counts_(counts) {}

  // RocksDB adds keys in ascending order, so the first is the smallest and the last the largest.
  // Deleted ranges follow, in ascending order of their own.
  rocksdb::Status AddUserKey(const Slice& key, const Slice& value, EntryType type, SequenceNumber,
                             uint64_t file_size) override {
    if (!any_ || (type == rocksdb::kEntryRangeDeletion && key.compare(first_) < 0)) {
      first_.assign(key.data(), key.size());
    }
    const Slice& end = type == rocksdb::kEntryRangeDeletion ? value : key;
    if (!any_ || end.compare(last_) > 0) {
      last_.assign(end.data(), end.size());
    }
    // The first key of each 256 KiB block, from the second on. The key after a large value may begin
    // several.
    while (type != rocksdb::kEntryRangeDeletion && starts_.size() < file_size / kBlockBytes) {
      starts_.emplace_back(key.data(), key.size());
    }
    if (counts_ != nullptr && type != rocksdb::kEntryRangeDeletion) {
      // The size of the file grows with each block that is complete.
      if (file_size != data_len_) {
        EndBlock(file_size);
      }
      reads_ += plimsoll_key_counts_get(counts_, View(key));
    }
    any_ = true;
    data_len_ = file_size;
    return rocksdb::Status::OK();
  }

  rocksdb::Status Finish(UserCollectedProperties*) override {
    if (any_) {
      EndBlock(0);
      std::vector<Bytes> starts;
      starts.reserve(starts_.size());
      for (const std::string& start : starts_) {
        starts.push_back(View(start));
      }
      plimsoll_table_finished(View(first_), View(last_), starts.data(), starts.size(), data_len_,
                              blocks_.data(), blocks_.size());
    }
    return rocksdb::Status::OK();
  }

  UserCollectedProperties GetReadableProperties() const override { return {}; }
  const char* Name() const override { return "PlimsollKeyRange"; }

 private:
  // The block that begins at `data_len_` ends at `end`.
  void EndBlock(uint64_t end) {
    if (reads_ > 0) {
      blocks_.push_back({data_len_, end, reads_});
      reads_ = 0;
    }
  }

  const RustKeyCounts* const counts_;
  std::string first_;
  std::string last_;
  std::vector<std::string> starts_;
  // The end of the data blocks, without the last one: RocksDB reads the rest when it opens a table.
  uint64_t data_len_ = 0;
  bool any_ = false;
  // Reads of the records of the last block.
  uint64_t reads_ = 0;
  std::vector<BlockReads> blocks_;
};

class KeyRangeFactory final : public TablePropertiesCollectorFactory {
 public:
  // Placement compares ranges as bytes, so tables with another order of keys report none.
  KeyRangeFactory(bool bytewise, const RustKeyCounts* counts) : bytewise_(bytewise), counts_(counts) {}

  ~KeyRangeFactory() override {
    if (counts_ != nullptr) {
      plimsoll_key_counts_release(counts_);
    }
  }

  TablePropertiesCollector* CreateTablePropertiesCollector(Context context) override {
    // A table outside of any database (SstFileWriter) has no family to compare keys in.
    if (context.column_family_id == Context::kUnknownColumnFamily) {
      return nullptr;
    }
    plimsoll_table_begun(context.column_family_id, context.level_at_creation);
    return bytewise_ ? new KeyRange(counts_) : nullptr;
  }

  const char* Name() const override { return "PlimsollKeyRangeFactory"; }

 private:
  const bool bytewise_;
  const RustKeyCounts* const counts_;
};

}  // namespace

extern "C" void plimsoll_install_table_range(rocksdb_options_t* options,
                                             const RustKeyCounts* counts) {
  auto& view = *reinterpret_cast<rocksdb::Options*>(options);
  const bool bytewise = view.comparator == rocksdb::BytewiseComparator();
  view.table_properties_collector_factories.push_back(
      std::make_shared<KeyRangeFactory>(bytewise, counts));
}

}  // namespace plimsoll
