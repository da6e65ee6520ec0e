#include "outcome.h"

namespace plimsoll {

using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus Status(Outcome outcome) {
  if (outcome.code == Code::kOk) {
    return IOStatus::OK();
  }
  const Slice message(outcome.message, outcome.message_len);
  IOStatus status = [&] {
    switch (outcome.code) {
      case Code::kNotFound:
        return IOStatus::NotFound(message);
      case Code::kPathNotFound:
        return IOStatus::PathNotFound(message);
      case Code::kFenced:
        return IOStatus::IOFenced(message);
      case Code::kCorruption:
        return IOStatus::Corruption(message);
      case Code::kInvalid:
        return IOStatus::InvalidArgument(message);
      case Code::kOk:
      case Code::kIoError:
        break;
    }
    return IOStatus::IOError(message);
  }();
  status.SetRetryable(outcome.retryable);
  if (outcome.file_scope) {
    status.SetScope(IOStatus::IOErrorScope::kIOErrorScopeFile);
  }
  plimsoll_message_free(outcome.message, outcome.message_len);
  return status;
}

}  // namespace plimsoll
