// One suite for all devices. In a test file, outside of all namespaces:
//   HIPPO_TEST_DEVICE_CONFORMANCE(Host, hippogriff::HostFactory);
// where a factory has two static functions:
//   std::shared_ptr<Device> make();   // null: the tests are skipped
//   std::string why_absent();         // the reason they print then
// Tests of what a device cannot do skip by its capabilities.
#pragma once

#include "testing/device_memory_conformance.hpp"
#include "testing/device_stream_conformance.hpp"

#define HIPPO_TEST_DEVICE_CONFORMANCE(Name, Factory)                                        \
  namespace hippogriff::device_testing {                                                    \
  INSTANTIATE_TYPED_TEST_SUITE_P(Name, DeviceMemoryConformance, ::testing::Types<Factory>); \
  INSTANTIATE_TYPED_TEST_SUITE_P(Name, DeviceStreamConformance, ::testing::Types<Factory>); \
  }                                                                                         \
  static_assert(true, "takes the semicolon")
