// The conformance suite over every storage: both queues, two file systems, and the fault wrapper
// when nothing goes wrong.
#include "storage/uring_queue.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/storage_conformance.hpp"

namespace hippogriff {
namespace {

std::shared_ptr<Storage> with_io_uring() {
  return why_no_io_uring().empty() ? make_system_storage(QueueKind::io_uring) : nullptr;
}

std::shared_ptr<Storage> with_plain_io_uring() {
  return why_no_io_uring().empty() ? make_system_storage(QueueKind::plain_io_uring) : nullptr;
}

std::shared_ptr<Storage> with_threads() {
  return make_system_storage(QueueKind::threads);
}

std::shared_ptr<Storage> without_faults() {
  return make_faulty_storage(make_system_storage(QueueKind::automatic),
                             std::make_shared<FaultPlan>());
}

INSTANTIATE_TEST_SUITE_P(
    System,
    StorageConformance,
    ::testing::Values(StorageFactory{"io_uring_on_disk", &with_io_uring, "."},
                      StorageFactory{"plain_io_uring_on_disk", &with_plain_io_uring, "."},
                      StorageFactory{"threads_on_disk", &with_threads, "."},
                      StorageFactory{"io_uring_on_tmpfs", &with_io_uring, "/dev/shm"},
                      StorageFactory{"threads_on_tmpfs", &with_threads, "/dev/shm"}),
    storage_factory_name);

INSTANTIATE_TEST_SUITE_P(Faulty,
                         StorageConformance,
                         ::testing::Values(StorageFactory{"without_faults", &without_faults, "."}),
                         storage_factory_name);

}  // namespace
}  // namespace hippogriff
