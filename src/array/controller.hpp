// Serves the commands of arrays: host threads that look at doorbells, read and write, and sleep
// when there is nothing to do.
#pragma once

#include "array/copy_crew.hpp"
#include "array/served_array.hpp"
#include "array/shared_drives.hpp"
#include "array/window_registrar.hpp"
#include "storage/storage.hpp"

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace hippogriff::ondemand {

class ControllerThread;

// Thread-safe. Queue i of an array is served by thread i modulo the number of threads; each thread
// serves its queues in turn, a few commands at a time, whichever array they belong to. Beside these
// there is one thread for flushes, once one was asked for, and a crew that copies. Of a drive where
// other processes' arrays are it takes its share (drive_share.hpp).
class Controller {
 public:
  // Queues beyond `threads` share them. Threads start with the first array.
  Controller(std::shared_ptr<Storage> storage, std::size_t threads, CopyCrewOptions crew = {});
  // Ends every array that is attached, and waits for what the drive has begun.
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // What CPU threads that submit to queue `index` wake: QueuePair::wake. Threads of a GPU cannot,
  // and leave it null: then the thread naps for 20 to 100 us at most.
  [[nodiscard]] WakeWord* wake_word(std::size_t index);

  void attach(const std::shared_ptr<ServedArray>& array);
  // Ends the array and waits until its queues and memory are not used any more. False when a drive
  // has not answered in time: then both must stay.
  [[nodiscard]] bool detach(const std::shared_ptr<ServedArray>& array,
                            std::chrono::milliseconds patience);

  [[nodiscard]] std::size_t thread_count() const { return threads_.size(); }

  // False once one of its threads has failed: arrays that come get another controller.
  [[nodiscard]] bool works() const;

  [[nodiscard]] SharedDrives& drives() { return drives_; }

  // Whether a device has staging memory of an array over files. Each such array tells when it has
  // and when it has no more.
  [[nodiscard]] bool stages_for(const Device* device) const;
  void begin_staging(const Device* device);
  void end_staging(const Device* device) noexcept;

 private:
  std::shared_ptr<Storage> storage_;
  SharedDrives drives_;
  WindowRegistrar registrar_;
  CopyCrew crew_;
  mutable std::mutex mutex_;                     // guards the next
  std::map<const Device*, std::size_t> staged_;  // arrays, never none
  std::vector<std::unique_ptr<ControllerThread>> threads_;
};

}  // namespace hippogriff::ondemand
