// Where an array's bytes are in its files, and whether the files are as long as that.
#include "array/backing.hpp"

#include "base/error.hpp"
#include "transfer/outlook.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

namespace hippogriff::ondemand {

namespace {

constexpr std::uint64_t array_bytes_max = std::uint64_t{1} << 60;

std::string operation_on(const std::string& path) {
  return "open array " + path;
}

// How long an array is that takes all of these files: it ends with the first stripe that is not
// whole.
std::uint64_t whole_size(const FileLayout& layout, const std::vector<std::uint64_t>& held) {
  if (layout.stripe_bytes == 0) {
    return *std::ranges::min_element(held);
  }
  std::uint64_t end = UINT64_MAX;
  for (std::uint64_t i = 0; i < held.size(); ++i) {
    const std::uint64_t stripe = held[i] / layout.stripe_bytes * held.size() + i;
    end = std::min(end, stripe * layout.stripe_bytes + held[i] % layout.stripe_bytes);
  }
  return end;
}

// One that is shorter has lost its end: the array must not become as short as that.
void refuse_unlike(const Backing& backing, const std::vector<std::uint64_t>& held) {
  const auto [least, most] = std::ranges::minmax_element(held);
  if (*least != *most) {
    const auto name_of_one = [&](auto which) {
      return backing.files[static_cast<std::size_t>(which - held.begin())].name;
    };
    throw_invalid(operation_on(name_of_one(least)),
                  "the file has " + counted_bytes(*least) + " for the array, and " +
                      name_of_one(most) + " has " + counted_bytes(*most) +
                      ": copies are as long as each other; give the array's size if that is right");
  }
}

// The array's size, as given or as the files tell.
std::uint64_t checked_size(const Backing& backing, std::uint64_t wanted) {
  const FileLayout layout = backing.layout();
  std::vector<std::uint64_t> held;
  for (const BackingFile& each : backing.files) {
    const std::uint64_t size = each.file->size_now();
    if (size > array_bytes_max / layout.file_count) {
      throw_invalid(operation_on(each.name), "a file of " + counted_bytes(size) + " is too large");
    }
    if (layout.file_offset > size) {
      throw_invalid(operation_on(each.name),
                    "the array begins at byte " + std::to_string(layout.file_offset) +
                        " of a file of " + counted_bytes(size));
    }
    held.push_back(size - layout.file_offset);
  }
  const std::uint64_t size = wanted == 0 ? whole_size(layout, held) : wanted;
  if (wanted == 0 && layout.copies() > 1) {
    refuse_unlike(backing, held);
  }
  for (std::uint64_t i = 0; i < held.size(); ++i) {
    const std::uint64_t needed = layout.bytes_in(size, i);
    if (held[i] < needed) {
      throw_invalid(operation_on(backing.files[i].name),
                    "the array ends beyond the file: it takes " + counted_bytes(needed) + " of " +
                        counted_bytes(held[i]));
    }
    if (wanted == 0 && held[i] > needed) {
      throw_invalid(operation_on(backing.files[i].name),
                    "the file has " + counted_bytes(held[i]) +
                        " where the others leave the array " + counted_bytes(needed) +
                        ": give the array's size if that is right");
    }
  }
  return size;
}

// Before anything is made or cut: one file twice would be written over itself.
void refuse_twice(const std::vector<std::string>& paths) {
  const auto same = [](const std::filesystem::path& one, const std::filesystem::path& other) {
    std::error_code none;
    return std::filesystem::equivalent(one, other, none) ||
           std::filesystem::weakly_canonical(one, none) ==
               std::filesystem::weakly_canonical(other, none);
  };
  for (std::size_t i = 0; i < paths.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (same(paths[i], paths[j])) {
        throw_invalid(operation_on(paths[i]), "it is the same file as " + paths[j]);
      }
    }
  }
}

}  // namespace

MadeFiles::~MadeFiles() {
  for (const std::string& path : paths_) {
    storage_.remove(path);
  }
}

std::shared_ptr<File> MadeFiles::open_or_make(const std::string& path) {
  try {
    return storage_.open(path, FileAccess::read_write);
  } catch (const Error& error) {
    if (error.failure().errno_value != ENOENT) {
      throw;
    }
  }
  auto file = storage_.create(path);
  paths_.push_back(path);
  return file;
}

std::uint64_t FileLayout::bytes_in(std::uint64_t array_bytes, std::uint64_t index) const {
  if (stripe_bytes == 0) {
    return array_bytes;
  }
  const std::uint64_t stripes = array_bytes / stripe_bytes;
  const std::uint64_t last = array_bytes % stripe_bytes;
  const std::uint64_t whole = stripes / file_count + (index < stripes % file_count ? 1 : 0);
  return whole * stripe_bytes + (index == stripes % file_count ? last : 0);
}

std::uint64_t FileLayout::file_of(std::uint64_t offset, std::uint64_t copy) const {
  return stripe_bytes == 0 ? copy : offset / stripe_bytes % file_count;
}

std::uint64_t FileLayout::offset_in_file(std::uint64_t offset) const {
  if (stripe_bytes == 0) {
    return file_offset + offset;
  }
  return file_offset + offset / stripe_bytes / file_count * stripe_bytes + offset % stripe_bytes;
}

std::uint64_t FileLayout::together_from(std::uint64_t offset) const {
  if (stripe_bytes == 0 || file_count == 1) {
    return UINT64_MAX;
  }
  return stripe_bytes - offset % stripe_bytes;
}

FilePart Backing::part_at(std::uint64_t offset, std::uint64_t bytes_max, std::uint64_t copy) const {
  const FileLayout where = layout();
  const BackingFile& file = files[where.file_of(offset, copy)];
  FilePart part{
      &file, where.offset_in_file(offset), std::min(bytes_max, where.together_from(offset)), false};
  const Range direct = file.direct;
  if (part.offset < direct.offset) {
    part.size_bytes = std::min(part.size_bytes, direct.offset - part.offset);
  } else if (part.offset < direct.end()) {
    part.size_bytes = std::min(part.size_bytes, direct.end() - part.offset);
    part.is_direct = true;
  }
  return part;
}

template <typename Act>
void Backing::each_part(Range part, const Act& act) const {
  for (std::uint64_t copy = 0; copy < layout().copies(); ++copy) {
    for (std::uint64_t offset = part.offset; offset < part.end();) {
      const FilePart there = part_at(offset, part.end() - offset, copy);
      act(there);
      offset += there.size_bytes;
    }
  }
}

void Backing::begin_write_back(Range part) const {
  each_part(part, [](const FilePart& there) {
    there.file->file->begin_write_back({there.offset, there.size_bytes});
  });
}

// Not where that could take room that a write needs: an array that stays full of holes may need no
// more than there is. All files may be on one file system.
bool Backing::allocate(Range part, std::uint64_t left_bytes) const {
  std::vector<Range> ranges(files.size());  // what of a file is in it lies together
  each_part(part, [&](const FilePart& there) {
    Range& range = ranges[static_cast<std::size_t>(there.file - files.data())];
    range.offset = range.size == 0 ? there.offset : range.offset;
    range.size += there.size_bytes;
  });
  bool all = true;
  for (std::size_t i = 0; i < files.size(); ++i) {
    try {
      const std::uint64_t room = std::filesystem::space(files[i].name).available;
      if (room / layout().copies() < left_bytes ||
          files[i].file->size_now() < ranges[i].end()) {  // cut: it would look whole
        all = false;
      } else if (ranges[i].size != 0) {
        files[i].file->allocate(ranges[i]);
      }
    } catch (const std::exception&) {
      all = false;  // a file system that cannot, or was filled meanwhile
    }
  }
  return all;
}

void Backing::sync() const {
  if (overlay != nullptr) {
    return;
  }
  std::exception_ptr first;
  for (const BackingFile& each : files) {
    try {
      each.file->sync();
    } catch (...) {
      first = first ? first : std::current_exception();
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

std::string drive_of(const Backing& backing) {
  std::string drive;
  for (const BackingFile& file : backing.files) {
    const FileFacts& facts = file.file->facts();
    const std::string its = facts.in_memory ? "" : drive_key(facts);
    if (its.empty() || (!drive.empty() && its != drive)) {
      return "";
    }
    drive = its;
  }
  return drive;
}

std::string counted_bytes(std::uint64_t count) {
  return std::to_string(count) + " bytes";
}

std::string name_of(const std::vector<std::string>& paths) {
  if (paths.size() < 2) {
    return paths.empty() ? "" : paths.front();
  }
  return paths.front() + " and " + std::to_string(paths.size() - 1) + " more";
}

Backing open_backing(Storage& storage, const BackingRequest& request) {
  refuse_twice(request.paths);
  Backing backing;
  backing.name = name_of(request.paths);
  backing.stripe_bytes = request.stripe_bytes;
  backing.file_offset = request.file_offset;
  backing.writable = request.mode != "r";
  backing.is_new = request.mode == "w+";
  if (backing.is_new) {
    backing.made = std::make_shared<MadeFiles>(storage);
    for (const std::string& path : request.paths) {
      backing.files.push_back({backing.made->open_or_make(path), path});
    }
    backing.size_bytes = request.size_bytes;
    return backing;
  }
  const bool changes_files = backing.writable && request.mode != "c";
  for (const std::string& path : request.paths) {
    backing.files.push_back(
        {storage.open(path, changes_files ? FileAccess::read_write : FileAccess::read), path});
  }
  backing.size_bytes = checked_size(backing, request.size_bytes);
  return backing;
}

void empty_files(const Backing& backing) {
  std::vector<std::uint64_t> before;
  std::vector<std::uint64_t> wanted;
  try {
    for (std::size_t i = 0; i < backing.files.size(); ++i) {
      File& file = *backing.files[i].file;
      wanted.push_back(backing.file_offset + backing.layout().bytes_in(backing.size_bytes, i));
      before.push_back(file.size_now());
      file.truncate(std::max(before.back(), wanted.back()));
    }
  } catch (...) {
    const std::exception_ptr first = std::current_exception();
    for (std::size_t i = 0; i < before.size(); ++i) {
      backing.files[i].file->truncate(before[i]);
    }
    std::rethrow_exception(first);
  }
  for (std::size_t i = 0; i < backing.files.size(); ++i) {
    backing.files[i].file->truncate(0);
    backing.files[i].file->truncate(wanted[i]);
  }
  backing.made->keep();
}

}  // namespace hippogriff::ondemand
