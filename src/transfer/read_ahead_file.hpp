// A file of which one range has been read already: that comes out of memory, as if it were in the
// page cache, and all else from the file.
#pragma once

#include "base/range.hpp"
#include "storage/storage.hpp"

#include <memory>

namespace hippogriff {

// As thread-safe as the file.
class ReadAheadFile final : public File {
 public:
  // `memory` is where the range begins.
  ReadAheadFile(std::shared_ptr<File> file,
                Range range,
                std::shared_ptr<const std::byte> memory) noexcept;

  [[nodiscard]] std::uint64_t read_bytes() const { return range_.size; }

  // Gives the memory back. While no other call is under way.
  void forget() noexcept;

  [[nodiscard]] const FileFacts& facts() const override { return file_->facts(); }

  [[nodiscard]] FileIdentity identity() const override { return file_->identity(); }

  [[nodiscard]] int fd() const override { return file_->fd(); }

  [[nodiscard]] int direct_fd() const override { return file_->direct_fd(); }

  [[nodiscard]] std::size_t read(std::span<std::byte> to, std::uint64_t offset) override;
  [[nodiscard]] std::optional<std::size_t> read_cached_pieces(std::span<const iovec> to,
                                                              std::uint64_t offset,
                                                              PageCache expected) override;
  [[nodiscard]] std::optional<Residency> residency(Range range) override;

  [[nodiscard]] std::size_t write(std::span<const std::byte> from, std::uint64_t offset) override {
    return file_->write(from, offset);
  }

  [[nodiscard]] std::uint64_t size_now() override { return file_->size_now(); }

  void allocate(Range range) override { file_->allocate(range); }

  void truncate(std::uint64_t size) override { file_->truncate(size); }

  void sync() override { file_->sync(); }

  void begin_write_back(Range range) noexcept override { file_->begin_write_back(range); }

  void begin_read_ahead(Range range) noexcept override { file_->begin_read_ahead(range); }

  [[nodiscard]] std::span<std::byte> map(Range range, FileAccess access) override {
    return file_->map(range, access);
  }

  void unmap(std::span<std::byte> mapping) noexcept override { file_->unmap(mapping); }

 private:
  [[nodiscard]] bool holds(std::uint64_t offset) const {
    return offset >= range_.offset && offset < range_.end();
  }

  const std::shared_ptr<File> file_;
  Range range_;
  std::shared_ptr<const std::byte> memory_;
};

}  // namespace hippogriff
