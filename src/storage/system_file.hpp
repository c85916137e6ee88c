// An open file of the machine's own.
#pragma once

#include "storage/descriptor.hpp"
#include "storage/file_probe.hpp"
#include "storage/storage.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace hippogriff {

// What SystemStorage hands to a file that it has opened and checked.
struct OpenedFile {
  Descriptor descriptor;
  int flags = 0;                         // of the descriptor (F_GETFL)
  FileAccess access = FileAccess::read;  // what was asked for; the descriptor may allow more
  std::string path;                      // "" when only /proc knows it
  FileIdentity identity;
  std::shared_ptr<DeviceCatalog> catalog;
};

// Thread-safe. Facts and the O_DIRECT description are found at their first use.
class SystemFile final : public File {
 public:
  explicit SystemFile(OpenedFile opened) : opened_(std::move(opened)) {}

  [[nodiscard]] const FileFacts& facts() const override;

  [[nodiscard]] FileIdentity identity() const override { return opened_.identity; }

  [[nodiscard]] int fd() const override { return opened_.descriptor.get(); }

  [[nodiscard]] int direct_fd() const override;

  [[nodiscard]] std::size_t read(std::span<std::byte> to, std::uint64_t offset) override;
  [[nodiscard]] std::optional<std::size_t> read_cached_pieces(std::span<const iovec> to,
                                                              std::uint64_t offset,
                                                              PageCache expected) override;
  [[nodiscard]] std::size_t write(std::span<const std::byte> from, std::uint64_t offset) override;
  [[nodiscard]] std::optional<Residency> residency(Range range) override;
  [[nodiscard]] std::uint64_t size_now() override;
  void allocate(Range range) override;
  void truncate(std::uint64_t size) override;
  void sync() override;
  void begin_write_back(Range range) noexcept override;
  void begin_read_ahead(Range range) noexcept override;
  [[nodiscard]] std::span<std::byte> map(Range range, FileAccess access) override;
  void unmap(std::span<std::byte> mapping) noexcept override;

 private:
  [[nodiscard]] std::string path() const;
  [[noreturn]] void fail(const char* operation, std::uint64_t offset, int errno_value) const;
  [[nodiscard]] std::size_t read_pieces(std::span<const iovec> to, std::uint64_t offset);
  void check_end(const char* operation, std::uint64_t offset, std::uint64_t size_bytes) const;
  void find_direct() const;
  [[nodiscard]] std::string open_direct() const;  // why not; "" when it works
  [[nodiscard]] const FileSystemKind& filesystem() const;

  OpenedFile opened_;
  std::atomic<bool> no_wait_unsupported_{false};
  mutable std::once_flag filesystem_once_;
  mutable FileSystemKind filesystem_;
  mutable std::once_flag direct_once_;
  mutable Descriptor direct_;
  mutable std::uint32_t direct_alignment_ = 0;
  mutable std::string why_not_direct_;
  mutable std::once_flag facts_once_;
  mutable FileFacts facts_;
};

}  // namespace hippogriff
