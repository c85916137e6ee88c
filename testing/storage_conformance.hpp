// One suite for all storages. Include it in one test file and, in namespace hippogriff,
//   INSTANTIATE_TEST_SUITE_P(System, StorageConformance, ::testing::Values(StorageFactory{…}, …),
//                            storage_factory_name);
// Tests of what a file system cannot do skip by its facts.
#pragma once

#include "testing/storage_file_conformance.hpp"
#include "testing/storage_queue_conformance.hpp"
