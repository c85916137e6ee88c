// What the memory is like that a transfer fills or empties: found out once, before it begins.
#pragma once

#include "transfer/transfer.hpp"

namespace hippogriff {

// Whether O_DIRECT can move a file's bytes to and from the memory as it lies. What is allocated for
// a transfer begins on a page.
bool lies_in_place(const TransferRequest& request);

// Whether most of the memory that a send to host memory fills has no pages yet: nobody has touched
// it, and whoever does waits for the kernel to make and clear them. Looked at in 16 places at most.
// `allocated` is where it goes when the request names no address; false where neither does. Memory
// that is no longer mapped counts as touched: reading into it tells what is wrong.
bool lies_in_new_memory(const TransferRequest& request, DeviceAddress allocated);

}  // namespace hippogriff
