// The rule, and its facts as JSON.
#include "array/array_outlook.hpp"

#include "array/overlay.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

namespace hippogriff::ondemand {

namespace {

using Json = nlohmann::ordered_json;

LineSource source_of(const StorageArray& array) {
  const Backing& backing = array.backing();
  if (backing.in_memory()) {
    return array.answers_with_addresses() ? LineSource::shared_memory : LineSource::memory;
  }
  if (backing.windows != nullptr) {
    return LineSource::mapping;
  }
  return backing.is_direct ? LineSource::drive : LineSource::page_cache;
}

const char* words_for(LineSource source) {
  switch (source) {
    case LineSource::memory:
      return "host memory, copied";
    case LineSource::shared_memory:
      return "host memory, read in place";
    case LineSource::mapping:
      return "the page cache: read in place where it is registered, else copied";
    case LineSource::page_cache:
      return "files through the page cache";
    case LineSource::drive:
      return "files past the page cache (O_DIRECT)";
  }
  return "";
}

std::string reason_for(LineSource source, const Backing& backing) {
  switch (source) {
    case LineSource::memory:
      return "the device does not read this memory: it begins at no page, or was refused";
    case LineSource::shared_memory:
      return "the array is memory";
    case LineSource::mapping:
    case LineSource::page_cache:
    case LineSource::drive:
      return backing.io_reason;
  }
  return "";
}

const char* layout_of(const Backing& backing) {
  if (backing.in_memory()) {
    return "memory";
  }
  if (backing.files.size() == 1) {
    return "one file";
  }
  return backing.stripe_bytes == 0 ? "replicated" : "striped";
}

Json files_of(const StorageArray& array, std::uint64_t& resident_bytes) {
  const Backing& backing = array.backing();
  Json files = Json::array();
  for (std::size_t i = 0; i < backing.files.size(); ++i) {
    const BackingFile& each = backing.files[i];
    const FileFacts& facts = each.file->facts();
    const std::uint64_t size = backing.layout().bytes_in(backing.size_bytes, i);
    const auto residency = each.file->residency({backing.file_offset, size});
    const std::uint64_t resident = residency ? residency->resident_bytes : 0;
    resident_bytes += resident;
    files.push_back({{"path", each.name},
                     {"filesystem", facts.filesystem},
                     {"drive", facts.drive},
                     {"bytes", size},
                     {"cached_bytes", resident}});
    if (backing.layout().copies() > 1) {
      files.back()["failed"] = array.copy_failed(i);
    }
  }
  if (backing.stripe_bytes == 0 && !backing.files.empty()) {
    resident_bytes /= backing.files.size();
  }
  return files;
}

// Why rows take the way that they do: as was predicted, or by what has been seen since.
std::string why_rows(const RowReads& reads, const ReuseWatch::Seen& seen) {
  if (!seen.hits) {
    return reads.why;
  }
  const auto percent = [](double share) { return std::to_string(std::lround(100 * share)) + " %"; };
  return "about " + percent(*seen.hits) +
         " of the lines that rows asked for lately were in the cache, which "
         "is quicker from " +
         percent(seen.hits_enough) + " on";
}

}  // namespace

BetterWay better_way(const ArrayFacts& facts) {
  if (facts.loaded) {
    return {"array", "all of it was loaded into the cache when it was opened"};
  }
  if (facts.fits_cache) {
    return {"load", "all of it fits into the cache: a load when it is opened reads large pieces"};
  }
  if (facts.on_host && facts.source == LineSource::shared_memory) {
    return {"map", "it is memory of this process: index that"};
  }
  if (facts.on_host && facts.one_file && facts.resident_bytes >= facts.size_bytes) {
    return {"map", "all of it is in the page cache: a mapping (numpy.memmap) copies nothing"};
  }
  if (facts.size_bytes <= facts.device_free_bytes) {
    return {"array",
            "it is larger than the cache; it would fit into the device's free memory: load all of "
            "it where most of it is touched"};
  }
  return {"array", "it is larger than the cache, and than the device's free memory"};
}

std::string explain_array(StorageArray& array, const std::string& queue_kind) {
  const Backing& backing = array.backing();
  const LineSource source = source_of(array);
  const ReuseWatch* const reuse = array.reuse();
  const ReuseWatch::Seen seen = reuse == nullptr ? ReuseWatch::Seen{.past = false} : reuse->seen();
  std::uint64_t resident_bytes = 0;
  Json told{{"array", backing.name},
            {"layout", layout_of(backing)},
            {"stripe_bytes", backing.stripe_bytes},
            {"files", files_of(array, resident_bytes)},
            {"bytes", array.size_bytes()},
            {"writable", backing.writable},
            {"device", array.device().info().name},
            {"cache_bytes", array.cache_bytes()},
            {"line_bytes", array.cache().line_bytes()},
            {"loaded_bytes", array.loaded_bytes()},
            {"load_reason", array.load_reason()},
            {"zero_copy", seen.past},
            {"zero_copy_reason", why_rows(array.row_reads(), seen)},
            {"source", words_for(source)},
            {"reason", reason_for(source, backing)}};
  if (array.row_reads().cache_seconds != 0) {
    told["cache_seconds"] = array.row_reads().cache_seconds;
    told["zero_copy_seconds"] = array.row_reads().past_seconds;
  }
  if (seen.hits) {
    told["hits_seen"] = *seen.hits;
  }
  if (!backing.in_memory()) {
    told["io_queue"] = queue_kind;
    told["cached_bytes"] = resident_bytes;
  }
  if (backing.windows != nullptr) {
    told["in_place_bytes"] = backing.windows->in_place_bytes();
  }
  if (backing.overlay != nullptr) {
    told["overlay"] = backing.overlay->folder();
  }
  const std::uint64_t free_bytes = array.device_free_bytes();
  const BetterWay better = better_way({.source = source,
                                       .one_file = backing.files.size() == 1,
                                       .on_host = array.device().info().can.host_addressable,
                                       .fits_cache = array.cache().places.whole,
                                       .loaded = array.loaded_bytes() != 0,
                                       .size_bytes = array.size_bytes(),
                                       .resident_bytes = resident_bytes,
                                       .device_free_bytes = free_bytes});
  told["device_free_bytes"] = free_bytes;
  told["better"] = better.way;
  told["why"] = better.why;
  return told.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hippogriff::ondemand
