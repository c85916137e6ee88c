/* hippogriff: arrays that live in storage, in C. C++ and kernels: array.hpp, array.cuh.
 *
 * An array is a part of a file, or of host memory. Threads of its device (CPU threads on the device
 * host) read and write it through a cache in the device's memory. All sizes and offsets are bytes.
 * Functions return 0 or a hippogriff_status; hippogriff_last_error tells more. Any thread may call
 * them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HIPPOGRIFF_ARRAY_H_
#define HIPPOGRIFF_ARRAY_H_

#include <hippogriff/hippogriff.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hippogriff_storage_array hippogriff_storage_array;

/** Fill with zeros, set struct_size, then what is wanted. */
typedef struct hippogriff_array_options {
  size_t struct_size;
  const char* path;   /**< a file, or paths below, or */
  void* memory;       /**< host memory, which must stay; on a GPU best page-aligned */
  uint64_t offset;    /**< of the array in the file */
  uint64_t size;      /**< 0: the rest of the file */
  const char* mode;   /**< as numpy.memmap: "r" (NULL), "r+", "w+" (makes the file; needs size), "c"
                         (writes are seen by this array's threads and go into no file) */
  const char* device; /**< "host", "cuda:0"; NULL: as hippogriff_options.device */
  uint64_t cache_size;        /**< of the lines, in the device's memory; no more than all of the
                                   array is taken; 0: 64 MiB */
  uint32_t line_size;         /**< a power of two, 512 to 1 MiB; 0: 4096 */
  uint32_t queue_count;       /**< at most 1024; 0: as the device needs */
  uint32_t queue_depth;       /**< a power of two, 4 to 32768; times queue_count at most 1048576,
                                   since each command has memory; 0: as the device needs */
  int64_t wait_limit_ms;      /**< a thread that waits longer ends the array, but a flush
                                   that waits for a line fails alone; 0: a minute */
  const char* const* paths;   /**< several files as one array; `offset` is in each of them */
  size_t path_count;          /**< at most 64 */
  const char* layout;         /**< of them: "striped" (NULL where stripe_size is given): stripes in
                                   turn; "replicated": each is a copy, reads are spread over them and
                                   go on with another where one fails, writes go to all */
  uint64_t stripe_size;       /**< a multiple of the line; 0: 1 MiB */
  const char* overlay_folder; /**< mode "c": what was written and left the cache is in a file
                                 without a name there, at most as long as the array. NULL: TMPDIR,
                                 else beside the file, else /var/tmp, else /tmp */
  const char* io;   /**< of files: "cached" (through the page cache), "direct" (past it, where lines
                       and offset are aligned; else cached), "auto" (NULL): direct when what is not in
                         the page cache when it is opened is more than memory has room for */
  const char* load; /**< what of it is in the cache when it is open: "all" (in large pieces; refused
                       where it does not fit), "none" (lines come as they are touched), "auto"
                       (NULL): all where it fits and is predicted to take at most 0.1 s, but memory;
                       and gathers on a GPU's stream read past the cache (zero-copy) what is only
                       read, is whole in memory, and is predicted to come sooner that way.
                       What is written to the file by others later is not seen in what was loaded */
  /** Called now and then (up to 50 times a second) by the thread that opens, while files or memory
   * are loaded; non-zero ends that: HIPPOGRIFF_CANCELLED, and no array. NULL: none. */
  int (*interrupted)(void* context);
  void* context;
} hippogriff_array_options;

typedef struct hippogriff_array_statistics {
  size_t struct_size;
  uint64_t misses;       /**< lines that were read */
  uint64_t overwritten;  /**< lines that came without a read */
  uint64_t written_back; /**< lines that were written */
  uint64_t reads;        /**< commands that were served, and their bytes */
  uint64_t read_bytes;
  uint64_t writes;
  uint64_t written_bytes;
  uint64_t failures;
  uint64_t metadata_bytes;  /**< of the device's memory, beside the lines: at most 2 % of a cache of
                               4 KiB lines from 2 MiB (on a GPU) or 6 MiB (device host) on, more of
                               smaller ones and of shorter lines */
  uint64_t other_copies;    /**< times that a read went on with another copy of the array */
  uint64_t accesses;        /**< lines that threads asked for; a cursor asks once for the line it
                               keeps. Of a GPU those of the calls below, and of kernels that count
                               (HIPPOGRIFF_COUNT_ACCESSES) */
  uint64_t hits;            /**< those that no miss answered; 0 where hits_counted is */
  uint64_t in_flight;       /**< commands that are not answered now: the queues' depth */
  uint64_t loaded_bytes;    /**< all of the array, if it was loaded when it was opened, else 0 */
  uint64_t zero_copy_bytes; /**< rows queued on a GPU that are read past the cache by themselves */
  uint64_t hits_counted;    /**< 0: a GPU's kernels have a view, and none of them has counted */
} hippogriff_array_statistics;

HIPPOGRIFF_API int hippogriff_array_open(const hippogriff_array_options* options,
                                         hippogriff_storage_array** array);
/** Ends waits of kernels and frees. No other thread may be in a call of the array, or use a view of
    it. What was written and not flushed is lost: flush first. */
HIPPOGRIFF_API int hippogriff_array_close(hippogriff_storage_array* array);

HIPPOGRIFF_API int hippogriff_array_size(hippogriff_storage_array* array, uint64_t* size);

/** What kernels work with: a hippogriff::ondemand::Cache of that size and layout (view_layout).
 *  Good until the array is closed. */
HIPPOGRIFF_API int hippogriff_array_view(hippogriff_storage_array* array,
                                         void* view,
                                         size_t view_size,
                                         uint32_t layout);

/** The same for programs without C++: the bytes of a hippogriff::array_view<T> for elements of that
 *  size, which kernels take by value. view_size is the room there is, and becomes the view's size;
 *  with view NULL nothing else happens, and the array may be NULL. Headers refuse to compile with
 *  -DHIPPOGRIFF_VIEW_LAYOUT=N unless N is their layout. */
HIPPOGRIFF_API int hippogriff_array_element_view(hippogriff_storage_array* array,
                                                 size_t element_size,
                                                 void* view,
                                                 size_t* view_size,
                                                 uint32_t* layout);
/** Where a GPU's memory has such a view, for kernels that take a pointer. Good until the array is
 *  closed. */
HIPPOGRIFF_API int hippogriff_array_view_address(hippogriff_storage_array* array,
                                                 size_t element_size,
                                                 uint64_t* address);

/** Through the cache: by the calling thread on the device host; on a GPU by kernels of the library
 *  and pinned memory, for small parts: the call returns when they have ended. */
HIPPOGRIFF_API int hippogriff_array_read(hippogriff_storage_array* array,
                                         uint64_t offset,
                                         void* to,
                                         size_t size);
HIPPOGRIFF_API int hippogriff_array_write(hippogriff_storage_array* array,
                                          uint64_t offset,
                                          const void* from,
                                          size_t size);

/** `count` rows of row_size bytes, by their numbers, one after the other in memory; by several
 * threads where that is worth it. Nothing is moved when a row is beyond the end. Of equal rows that
 * are written the last one stays. */
HIPPOGRIFF_API int hippogriff_array_gather(
    hippogriff_storage_array* array, const uint64_t* rows, size_t count, size_t row_size, void* to);
HIPPOGRIFF_API int hippogriff_array_scatter(hippogriff_storage_array* array,
                                            const uint64_t* rows,
                                            size_t count,
                                            size_t row_size,
                                            const void* from);

/** Rows by their numbers, all in the memory of the array's GPU. */
typedef struct hippogriff_device_rows {
  size_t struct_size;
  uint64_t numbers;       /**< device address of the row numbers, aligned to their size */
  uint64_t memory;        /**< device address of the rows, one after the other */
  uint64_t count;         /**< of numbers */
  uint64_t row_size;      /**< of a row in the array and in memory */
  uint32_t number_size;   /**< 4 or 8 */
  uint32_t number_signed; /**< not 0: numbers below 0 count from the end */
  void* stream;           /**< a CUstream, which must not capture a graph */
} hippogriff_device_rows;

/** Queue a gather or a scatter on a stream, on a GPU; all it names must stay until it is complete.
 *  The numbers are not looked at before: of rows that are out of range zeros are read and nothing
 *  is written, and hippogriff_array_check tells, as of every failure. Of equal rows that are
 *  written together parts of several may stay. */
HIPPOGRIFF_API int hippogriff_array_gather_async(hippogriff_storage_array* array,
                                                 const hippogriff_device_rows* rows);
HIPPOGRIFF_API int hippogriff_array_scatter_async(hippogriff_storage_array* array,
                                                  const hippogriff_device_rows* rows);

/** Hints: have lines on their way into the cache, and wait for none of them. Those of `size` bytes
 *  from an offset on, or of rows by their numbers, in that order: as many as half of the cache and
 *  the queues' slots for this have room for (on the device host 255 for each of 4 queues), without
 *  waiting for a clean place or a slot; what is more is left out. Later accesses find them, or ask
 *  for what has left the cache again. A read that fails is told to who accesses the line. What is
 *  beyond the array's end is refused. The memory with the numbers is free when the call returns. */
HIPPOGRIFF_API int hippogriff_array_prefetch(hippogriff_storage_array* array,
                                             uint64_t offset,
                                             uint64_t size);
HIPPOGRIFF_API int hippogriff_array_prefetch_rows(hippogriff_storage_array* array,
                                                  const uint64_t* rows,
                                                  size_t count,
                                                  size_t row_size);
/** The same on a stream, by numbers in a GPU's memory, which must stay until it is complete;
 *  `memory` names nothing. Rows that are out of range hippogriff_array_check tells, as of a gather.
 *  On a GPU the functions above wait for nothing that is queued; where so many of them wait for the
 *  GPU that they would be late, nothing is asked for. */
HIPPOGRIFF_API int hippogriff_array_prefetch_async(hippogriff_storage_array* array,
                                                   const hippogriff_device_rows* rows);

/** As hippogriff_array_gather_async, past the cache: straight from host memory that the array
 * stands on, or from the page cache where the file is whole in it, and is registered now as far as
 * it was not (half a second for 8 GiB, the first time); else HIPPOGRIFF_UNSUPPORTED. The least that
 * a miss can cost, to compare with. What was written to the array, and not flushed, is not seen. */
HIPPOGRIFF_API int hippogriff_array_zero_copy_async(hippogriff_storage_array* array,
                                                    const hippogriff_device_rows* rows);

/** On a GPU the functions that take host memory, and the flush, come after what is queued on the
 *  default stream, after the queued gathers and scatters, and after what was on the streams that
 *  were named here. On the device host nothing happens. */
HIPPOGRIFF_API int hippogriff_array_after(hippogriff_storage_array* array, void* stream);
/** Waits for the queued gathers and scatters. */
HIPPOGRIFF_API int hippogriff_array_wait(hippogriff_storage_array* array);

/** Writes every dirty line and has the storage keep it (fdatasync). Waits for lines that are held,
 *  as those are that a cursor keeps; after wait_limit_ms HIPPOGRIFF_TIMED_OUT, and a later flush
 *  writes them. Where fdatasync has failed once all later ones fail: what was written since the
 * last good flush may be lost, and is to be written again to an array that is opened again. On a
 * GPU a kernel writes the lines; hippogriff::flush of array.cuh does so on a stream. */
HIPPOGRIFF_API int hippogriff_array_flush(hippogriff_storage_array* array);
/** The second half of a flush: has the storage keep what lines were written. */
HIPPOGRIFF_API int hippogriff_array_sync(hippogriff_storage_array* array);

/** 0, or the first failure of any thread's access since the last clear. */
HIPPOGRIFF_API int hippogriff_array_check(hippogriff_storage_array* array);
/** Forgets it. What has ended the array (a wait past its limit, a controller that died) stays, and
 *  is returned: open it again. So is a failed fdatasync. */
HIPPOGRIFF_API int hippogriff_array_clear(hippogriff_storage_array* array);

HIPPOGRIFF_API int hippogriff_array_get_statistics(hippogriff_storage_array* array,
                                                   hippogriff_array_statistics* statistics);

/** JSON: what the array stands on and why, what of it is in the page cache, and whether loading all
 *  of it or mapping it would be better. Free it with hippogriff_free_string. */
HIPPOGRIFF_API int hippogriff_array_explain(hippogriff_storage_array* array, char** json);

#ifdef __cplusplus
}
#endif

#endif /* HIPPOGRIFF_ARRAY_H_ */
