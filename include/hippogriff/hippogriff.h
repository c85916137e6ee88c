/* hippogriff: move data between files and GPU memory by the best route there is at that moment.
 *
 * The C interface, and the one boundary of the library: everything else (C++, Python, the command)
 * is built on it. All sizes and offsets are bytes. Every function may be called from any thread.
 *
 * Source of the names: Hippogriff (Liu et al.), table I; Gullfoss (Tseng et al.), table 1.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HIPPOGRIFF_HIPPOGRIFF_H_
#define HIPPOGRIFF_HIPPOGRIFF_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(HIPPOGRIFF_BUILD)
#define HIPPOGRIFF_API __attribute__((visibility("default")))
#else
#define HIPPOGRIFF_API
#endif

#define HIPPOGRIFF_VERSION_MAJOR 0
#define HIPPOGRIFF_VERSION_MINOR 1
#define HIPPOGRIFF_VERSION_PATCH 0

/** What hippogriff_send and hippogriff_recv return when they fail. */
#define HIPPOGRIFF_FAILED ((size_t)-1)

/** What every other function returns: 0, or why not. */
typedef enum hippogriff_status {
  HIPPOGRIFF_OK = 0,
  HIPPOGRIFF_INVALID_ARGUMENT = 1,     /**< the caller's mistake; nothing was done */
  HIPPOGRIFF_NOT_INITIALIZED = 2,      /**< call hippogriff_init() first */
  HIPPOGRIFF_FORKED = 3,               /**< this process was forked after init; init again */
  HIPPOGRIFF_BUSY = 4,                 /**< the memory overlaps a transfer in flight */
  HIPPOGRIFF_UNSUPPORTED = 5,          /**< the route or feature does not exist here */
  HIPPOGRIFF_IO_ERROR = 6,             /**< the file system said no; errno tells why */
  HIPPOGRIFF_SHORT_FILE = 7,           /**< the file ended before the extent did */
  HIPPOGRIFF_DEVICE_ERROR = 8,         /**< the device said no; device_status tells why */
  HIPPOGRIFF_OUT_OF_DEVICE_MEMORY = 9, /**< no room on the device within memory_timeout_ms */
  HIPPOGRIFF_OUT_OF_HOST_MEMORY = 10,
  HIPPOGRIFF_CANCELLED = 11,
  HIPPOGRIFF_TIMED_OUT = 12, /**< a wait ended first; the transfer goes on */
  HIPPOGRIFF_INTERNAL = 13   /**< our bug */
} hippogriff_status;

/** One way to carry out a transfer. */
typedef enum hippogriff_route {
  HIPPOGRIFF_ROUTE_AUTO = 0,      /**< let the router choose */
  HIPPOGRIFF_ROUTE_DIRECT = 1,    /**< storage and device talk without host memory between */
  HIPPOGRIFF_ROUTE_MAPPED = 2,    /**< the device copies straight from or to the page cache */
  HIPPOGRIFF_ROUTE_PIPELINED = 3, /**< reads into the pinbuffer overlapped with copies */
  HIPPOGRIFF_ROUTE_PARKED = 4     /**< through host memory, decoupled from the device */
} hippogriff_route;

#define HIPPOGRIFF_ROUTE_COUNT 5

typedef enum hippogriff_flags {
  /** The transfer waits for the work that is on `stream` now. */
  HIPPOGRIFF_AFTER_STREAM = 1u << 0,
  /** Work put on `stream` after the call waits for the transfer (check the handle's status:
   *  the stream goes on also when the transfer failed). Run each kernel of that work once before:
   *  to load one, CUDA may wait for the whole GPU, this stream included, and hold up all other
   *  calls, the transfer's too. After 30 s without an answer the transfer fails
   *  (HIPPOGRIFF_DEVICE_ERROR) and the stream goes on. */
  HIPPOGRIFF_BEFORE_STREAM = 1u << 1,
  /** The pointer is the caller's ordinary host memory (device `host` only). */
  HIPPOGRIFF_HOST_MEMORY = 1u << 2,
  /** recv: fdatasync before the transfer completes. Whole-file writes by path always do. */
  HIPPOGRIFF_DURABLE = 1u << 3,
  /** recv: free the device memory (got from hippogriff) as soon as its bytes have left it. */
  HIPPOGRIFF_FREE_SOURCE = 1u << 4,
  /** recv by path, at offset 0: replace the file as a whole also where the bytes do not cover all
   *  of it. A block device is written in place. */
  HIPPOGRIFF_REPLACE = 1u << 5
} hippogriff_flags;

/** How to carry out one transfer. Start from HIPPOGRIFF_OPTIONS_INIT; zero means the default. */
typedef struct hippogriff_options {
  size_t struct_size; /**< sizeof(hippogriff_options) */
  const char* device; /**< "cuda:0", "host"; NULL: the pointer's, else the current one */
  hippogriff_route route;
  uint32_t flags; /**< hippogriff_flags */
  void* stream;   /**< cudaStream_t / CUstream, or hippogriff_stream_create's */
  /** How long a send that allocates may wait for device memory: > 0 milliseconds, 0 the default
   *  (10 s, or HIPPOGRIFF_MEMORY_TIMEOUT_MS), < 0 fail at once. */
  int64_t memory_timeout_ms;
  /** The most host memory, in bytes, that the transfer uses at one time: pinned slots and what is
   *  parked, in steps of 4 MiB, the least; less is HIPPOGRIFF_INVALID_ARGUMENT. 0: no bound but the
   *  process's (HIPPOGRIFF_PINBUFFER, HIPPOGRIFF_PARKING). Pages of the file that the device copies
   *  from where they are (mapped) do not count. Slots stay with the process, for later transfers.
   * With a bound nothing is parked unless the parked route is asked for by name. */
  uint64_t host_memory;
  /** hippogriff_sendv_async with HIPPOGRIFF_HOST_MEMORY, else HIPPOGRIFF_INVALID_ARGUMENT: gets
   *  XXH3 of each block of each segment, as hippogriff_checksum computes it, of the block as it is
   *  when its last byte has landed, while it is in a processor's cache. NULL: none. The segments
   *  must ascend in the file then. It must stay until the transfer is finished, and is complete if
   *  that ended with HIPPOGRIFF_OK. */
  uint64_t* checksums;
  uint64_t checksum_count;       /**< as many as there are blocks */
  uint64_t checksum_block_bytes; /**< a segment is cut every so many bytes from its beginning */
} hippogriff_options;

#define HIPPOGRIFF_OPTIONS_INIT \
  {sizeof(hippogriff_options), NULL, HIPPOGRIFF_ROUTE_AUTO, 0, NULL, 0, 0, NULL, 0, 0}

/** A transfer in flight or finished. Release it with hippogriff_release. */
typedef struct hippogriff_transfer hippogriff_transfer;

/** How far a transfer is. */
typedef struct hippogriff_progress {
  uint64_t bytes_done;
  uint64_t bytes_total;
  uint64_t bytes_parked; /**< waiting in host memory */
  double seconds;        /**< since submission, or until completion */
  int32_t finished;      /**< 1 when no more will happen */
  int32_t released;      /**< recv: 1 when the device memory may be reused */
} hippogriff_progress;

/** A byte range of the file. */
typedef struct hippogriff_range {
  uint64_t offset;
  uint64_t size;
} hippogriff_range;

/** A part of a file, and where its first byte goes. */
typedef struct hippogriff_segment {
  uint64_t offset; /**< of the file, in bytes */
  uint64_t size;   /**< in bytes; 0 is left out */
  void* memory;    /**< device memory, or host memory with HIPPOGRIFF_HOST_MEMORY */
} hippogriff_segment;

/** Memory to compute checksums of. */
typedef struct hippogriff_memory {
  const void* address; /**< device memory, or host memory with HIPPOGRIFF_HOST_MEMORY */
  uint64_t size;       /**< in bytes; 0 has no block */
} hippogriff_memory;

/** Why something failed. Strings belong to the handle, or to the calling thread for
 *  hippogriff_last_error, until its next failing call. */
typedef struct hippogriff_error {
  hippogriff_status status;
  const char* message;   /**< the whole sentence */
  const char* operation; /**< e.g. "read", "copy to device" */
  const char* object;    /**< path or device */
  uint64_t offset;       /**< in the file; UINT64_MAX when there is none */
  int32_t errno_value;   /**< 0 when it was not a system call */
  int32_t device_status; /**< CUresult; 0 when it was not the device */
} hippogriff_error;

/* --- The papers' interface ------------------------------------------------------------------ */

/** Starts the runtime. Counts: each init wants a deinit. Returns 0, or a hippogriff_status. */
HIPPOGRIFF_API int hippogriff_init(void);

/** Moves `size` bytes at `offset` of the file `fd` to device memory and waits. `*gpuMemPtr` NULL:
 *  allocates it (free with hippogriff_free, else hippogriff_deinit does). `size` 0: the rest of the
 *  file. Ordered after the work on CUDA's legacy default stream, as cudaMemcpy is.
 *  Returns the bytes moved, or HIPPOGRIFF_FAILED: ask hippogriff_last_error. */
HIPPOGRIFF_API size_t hippogriff_send(int fd, void** gpuMemPtr, size_t offset, size_t size);

/** Moves `size` bytes of device memory to the file `fd` at `offset` and waits. `size` 0: as much as
 *  the allocation holds from the pointer on, where hippogriff allocated it. A file that grows has
 * its full size only when all of it is there. */
HIPPOGRIFF_API size_t hippogriff_recv(int fd, void* gpuMemPtr, size_t offset, size_t size);

/** Cancels what is in flight, frees what send allocated, ends the threads. Returns 0, or a
 *  hippogriff_status (HIPPOGRIFF_TIMED_OUT when the system would not give a thread back in time:
 *  what it holds is then left to the end of the process). Handles stay valid. */
HIPPOGRIFF_API int hippogriff_deinit(void);

/** Gullfoss's forms, by file name. gullfoss_recv replaces the file as a whole (temporary name,
 *  fdatasync, rename) when it does not exist or when the bytes cover all of it; else it writes in
 *  place. */
HIPPOGRIFF_API int gullfoss_init(void);
HIPPOGRIFF_API size_t gullfoss_send(const char* filename,
                                    void** gpuMemPtr,
                                    size_t offset,
                                    size_t size);
HIPPOGRIFF_API size_t gullfoss_recv(const char* filename,
                                    void* gpuMemPtr,
                                    size_t offset,
                                    size_t size);
HIPPOGRIFF_API int gullfoss_deinit(void);

/* --- Asynchronous transfers ----------------------------------------------------------------- */

/** Submits a send and returns at once. `fd` is duplicated: it may be closed after the call.
 *  The device memory must stay until the transfer is finished. With `*gpuMemPtr` NULL the address
 *  is known once the transfer is finished (hippogriff_address) and is also stored there if the
 *  memory could be had at once. `options` may be NULL. */
HIPPOGRIFF_API int hippogriff_send_async(int fd,
                                         void** gpuMemPtr,
                                         size_t offset,
                                         size_t size,
                                         const hippogriff_options* options,
                                         hippogriff_transfer** transfer);
HIPPOGRIFF_API int hippogriff_recv_async(int fd,
                                         void* gpuMemPtr,
                                         size_t offset,
                                         size_t size,
                                         const hippogriff_options* options,
                                         hippogriff_transfer** transfer);

/** Moves many parts of a file, each to memory of its own, as one transfer: adjacent parts are read
 *  together, and one wait and one handle stand for all. All memory belongs to one device. Segments
 *  come in any order and overlap neither in the file nor in memory. Bytes between them go nowhere
 *  but may be read, and count in progress and report, whose extent goes from the first segment's
 *  first byte to the last one's last. The array is copied before the call returns. */
HIPPOGRIFF_API int hippogriff_sendv_async(int fd,
                                          const hippogriff_segment* segments,
                                          size_t count,
                                          const hippogriff_options* options,
                                          hippogriff_transfer** transfer);

/** By path. recv replaces or updates the file as gullfoss_recv does, unless HIPPOGRIFF_REPLACE. */
HIPPOGRIFF_API int hippogriff_send_path_async(const char* path,
                                              void** gpuMemPtr,
                                              size_t offset,
                                              size_t size,
                                              const hippogriff_options* options,
                                              hippogriff_transfer** transfer);
HIPPOGRIFF_API int hippogriff_recv_path_async(const char* path,
                                              void* gpuMemPtr,
                                              size_t offset,
                                              size_t size,
                                              const hippogriff_options* options,
                                              hippogriff_transfer** transfer);

/** Begins to read `size` bytes at `offset` of a file into the page cache, and returns: for a send
 *  that comes later, while a GPU's context is made, or the program or others have something else to
 *  do. `size` 0: the rest of the file. The send goes on from where this got to. It is a hint: of
 *  all that was asked for in the last half minute and has not been sent, as much is read as
 *  HIPPOGRIFF_PARKING says, and nothing where that is off, of files in memory, and while transfers
 *  of this process, or of others that share the node, use the drive. hippogriff_send needs no such
 *  hint where it makes the context itself: it reads meanwhile. Thread-safe. */
HIPPOGRIFF_API int hippogriff_prefetch(int fd, size_t offset, size_t size);
HIPPOGRIFF_API int hippogriff_prefetch_path(const char* path, size_t offset, size_t size);

/** Waits until the transfer is finished: < 0 for ever, else HIPPOGRIFF_TIMED_OUT after so many
 *  milliseconds. Returns the transfer's own status. */
HIPPOGRIFF_API int hippogriff_wait(hippogriff_transfer* transfer, int64_t timeout_ms);

/** recv: waits until the device memory may be reused (parked results leave it early). */
HIPPOGRIFF_API int hippogriff_wait_released(hippogriff_transfer* transfer, int64_t timeout_ms);

/** Asks a transfer to stop. It finishes soon, with HIPPOGRIFF_CANCELLED unless it was done. */
HIPPOGRIFF_API int hippogriff_cancel(hippogriff_transfer* transfer);

HIPPOGRIFF_API int hippogriff_get_progress(hippogriff_transfer* transfer,
                                           hippogriff_progress* progress);

/** The device address (send with NULL), or NULL while there is none. */
HIPPOGRIFF_API void* hippogriff_address(hippogriff_transfer* transfer);

/** Why the transfer failed; status HIPPOGRIFF_OK when it did not. Only when finished. */
HIPPOGRIFF_API int hippogriff_get_error(hippogriff_transfer* transfer, hippogriff_error* error);

/** Which bytes of the extent are not where they should be, in file offsets, ascending. Stores up to
 *  `capacity` ranges and the whole number in `*count`. Only when finished. */
HIPPOGRIFF_API int hippogriff_get_missing(hippogriff_transfer* transfer,
                                          hippogriff_range* ranges,
                                          size_t capacity,
                                          size_t* count);

/** What happened, as JSON: route, bytes by route, bytes from the page cache and from the disk,
 *  seconds, predicted seconds, channels, the most host memory it used at one time. Free with
 * hippogriff_free_string. Only when finished. */
HIPPOGRIFF_API int hippogriff_get_report(hippogriff_transfer* transfer, char** json);

/** The route that the bytes took, as the report has it: "direct", "mapped", "pipelined" or
 * "parked", several joined by "+" where several carried bytes, the chosen one where none moved any.
 * Free with hippogriff_free_string. Only when finished (else HIPPOGRIFF_BUSY). Thread-safe. */
HIPPOGRIFF_API int hippogriff_get_route(hippogriff_transfer* transfer, char** route);

/** A descriptor that polls readable once the transfer is finished. It belongs to the handle. */
HIPPOGRIFF_API int hippogriff_get_fd(hippogriff_transfer* transfer, int* fd);

/** Gives the handle back. A transfer in flight goes on. NULL is fine. */
HIPPOGRIFF_API void hippogriff_release(hippogriff_transfer* transfer);

/* --- Devices, memory, streams ---------------------------------------------------------------- */

/** Device memory of `device` (NULL: the current one), 256-byte aligned at least. Size 0 is an
 *  error. */
HIPPOGRIFF_API int hippogriff_malloc(const char* device, size_t size, void** pointer);

/** Frees what hippogriff allocated; NULL is fine. HIPPOGRIFF_BUSY while a transfer uses it. On a
 * GPU kernels and copies that are queued in its primary context may still use the memory: nobody
 * gets it before they are over, for which the call waits 1 ms at most (with drivers before CUDA
 * 12.5 until they are). Up to 512 MiB stay with hippogriff for the next allocation; what was still
 * in use then goes back to the device by the next call that allocates or frees. A graph that a
 * stream captures meanwhile may become invalid, as with cudaFree. */
HIPPOGRIFF_API int hippogriff_free(void* pointer);

/** Blocking copies between host and device memory, for programs without CUDA and for tests. They go
 *  by a stream of their own, which waits for no other, the default stream neither: synchronize with
 *  the kernels that write or read the memory before. HIPPOGRIFF_BUSY while a transfer writes the
 *  device memory, or reads what would be written. */
HIPPOGRIFF_API int hippogriff_copy_to_device(void* device_pointer, const void* host, size_t size);
HIPPOGRIFF_API int hippogriff_copy_to_host(void* host, const void* device_pointer, size_t size);

/** Computes checksums of memory where it is, and waits: XXH3 (64 bits, seed 0) of each block of
 * each part, in order. A part is cut every `block_bytes` from its own beginning; its last block may
 * be shorter. `checksums` gets exactly `checksum_count`, as many as there are blocks. All parts
 * belong to one device. `options` may be NULL; of them device, stream and the flags AFTER_STREAM
 * and HOST_MEMORY count, and the rest must be zero. CUDA devices hash their memory by a kernel;
 * host memory is hashed by up to HIPPOGRIFF_THREADS threads, the caller's first. HIPPOGRIFF_BUSY
 * while a transfer writes some of the memory. */
HIPPOGRIFF_API int hippogriff_checksum(const hippogriff_memory* parts,
                                       size_t count,
                                       size_t block_bytes,
                                       const hippogriff_options* options,
                                       uint64_t* checksums,
                                       size_t checksum_count);

/** A tensor of a file's header: where its name begins and ends in the text, where its kind begins
 *  (dtype and shape, as `BF16","shape":[2,3]`, which end with the first bracket), and its data
 * among all data. The kind may be that of an entry before, which has the same. */
typedef struct hippogriff_tensor_entry {
  uint64_t name_begin;
  uint64_t name_end;
  uint64_t kind_begin;
  uint64_t data_begin;
  uint64_t data_end;
} hippogriff_tensor_entry;

/** A header, and from where on its entries are searched: in the text, and in the data. Both move
 *  behind what is found, and the comma after it. */
typedef struct hippogriff_tensor_search {
  const char* text;
  uint64_t text_bytes;
  uint64_t position;
  uint64_t data_begin;
} hippogriff_tensor_search;

/** Finds entries in the header of a safetensors file; stores up to `capacity` of them, and their
 *  number in `*count`. For headers as writers write them, from anybody: each entry is
 *  `"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}` without a blank, its name printable
 *  ASCII without escapes, its shape 1 KiB at most, and its data begin where the one before ends.
 *  What looks otherwise ends the search, and may be right nevertheless. Whether a kind is one, and
 *  makes as many bytes, is for the caller to see. Needs no hippogriff_init. */
HIPPOGRIFF_API int hippogriff_find_tensors(hippogriff_tensor_search* search,
                                           hippogriff_tensor_entry* entries,
                                           size_t capacity,
                                           size_t* count);

/** Streams, for programs without CUDA and for tests: work in order on a device. `function` runs
 *  when all work before it has finished; it must not call hippogriff. */
HIPPOGRIFF_API int hippogriff_stream_create(const char* device, void** stream);
HIPPOGRIFF_API int hippogriff_stream_launch(const char* device,
                                            void* stream,
                                            void (*function)(void*),
                                            void* argument);
HIPPOGRIFF_API int hippogriff_stream_synchronize(const char* device,
                                                 void* stream,
                                                 int64_t timeout_ms);
/** Waits for the work that is on it, a minute at most. */
HIPPOGRIFF_API int hippogriff_stream_destroy(const char* device, void* stream);

/* --- Sharing devices with other processes ----------------------------------------------------- */

/** An amount of a device's memory promised to this process; nobody is promised the same. It ends
 *  with hippogriff_reservation_release, and with the process however that ends. It allocates
 *  nothing. These functions need no hippogriff_init, and make no CUDA context. Not valid in a
 * forked child (HIPPOGRIFF_FORKED), which reserves for itself. Source: Reaño, thesis, chapter 6
 * (schedGPU); its own names are in hippogriff/schedgpu.h. */
typedef struct hippogriff_reservation hippogriff_reservation;

typedef enum hippogriff_reserve_flags {
  /** For programs that start others: nothing is promised and waited for yet. The program that this
   *  one goes on as (hippogriff_node_hand_over), and what that starts, have the reservation taken,
   *  whole, when one of them first needs memory of the device; HIPPOGRIFF_WAIT_MS there says how
   *  long that may wait. HIPPOGRIFF_INVALID_ARGUMENT for a second one of a device. */
  HIPPOGRIFF_RESERVE_AT_FIRST_USE = 1u << 0
} hippogriff_reserve_flags;

/** Start from HIPPOGRIFF_RESERVE_OPTIONS_INIT; zero means the default. */
typedef struct hippogriff_reserve_options {
  size_t struct_size; /**< sizeof(hippogriff_reserve_options) */
  const char* device; /**< "cuda:0", "host", a GPU's UUID; NULL: the default device */
  int64_t timeout_ms; /**< 0: do not wait; < 0: as long as it takes */
  int32_t priority;   /**< larger is served sooner, under the priority policies */
  uint32_t flags;     /**< hippogriff_reserve_flags */
  /** Called now and then (20 times a second) by the thread that waits; non-zero ends the wait:
   *  HIPPOGRIFF_CANCELLED. NULL: none. */
  int (*interrupted)(void* context);
  void* context;
} hippogriff_reserve_options;

#define HIPPOGRIFF_RESERVE_OPTIONS_INIT \
  {sizeof(hippogriff_reserve_options), NULL, 0, 0, 0, NULL, NULL}

/** Reserves `size` bytes. HIPPOGRIFF_OUT_OF_DEVICE_MEMORY at once when the device is smaller than
 *  that, and while it waits when contexts of those that wait leave each other too little and this
 *  one asks most; HIPPOGRIFF_BUSY when it is not free now and timeout_ms is 0,
 *  HIPPOGRIFF_TIMED_OUT. `options` may be NULL. In a command started by `hippogriff run` it comes
 *  out of the command's reservation. */
HIPPOGRIFF_API int hippogriff_reserve(size_t size,
                                      const hippogriff_reserve_options* options,
                                      hippogriff_reservation** reservation);

/** Waits until the reservation that `hippogriff run --wait first-use` left for this command is
 *  there, as whatever allocates on the device does by itself; this wait has a time and can be
 *  interrupted. No longer than HIPPOGRIFF_WAIT_MS says, and not at all in other programs. Of
 *  `options`, which may be NULL (no wait), device, timeout_ms and `interrupted` are used.
 *  HIPPOGRIFF_OUT_OF_DEVICE_MEMORY when it was not free in time, HIPPOGRIFF_CANCELLED. */
HIPPOGRIFF_API int hippogriff_claim(const hippogriff_reserve_options* options);

/** Grows or shrinks a reservation to `size` bytes. To grow may wait, before everybody who holds
 *  nothing; when all who hold the device's memory wait for more of it, the last who asked gets
 *  HIPPOGRIFF_OUT_OF_DEVICE_MEMORY. What was reserved stays when this fails. Of `options`, which
 * may be NULL (no wait), timeout_ms and `interrupted` are used; device and priority must not be
 * set. */
HIPPOGRIFF_API int hippogriff_reservation_resize(hippogriff_reservation* reservation,
                                                 size_t size,
                                                 const hippogriff_reserve_options* options);

/** How much it is, in bytes, and of which device (by the name given, or the default's; valid as
 * long as the reservation). Either may be NULL. */
HIPPOGRIFF_API int hippogriff_reservation_get(hippogriff_reservation* reservation,
                                              size_t* size,
                                              const char** device);

/** Gives it back, also after a fork; NULL is fine. Another thread's resize of it ends. */
HIPPOGRIFF_API int hippogriff_reservation_release(hippogriff_reservation* reservation);

/** JSON: the node's devices (capacity, promised, used outside, really used), reservations and who
 *  waits, the programs that take part, their transfers in flight and arrays in storage. Free it
 *  with hippogriff_free_string. */
HIPPOGRIFF_API int hippogriff_node_status(char** json);

/** Who is served next, for all programs of the node: "fifo", "mmu", "priority-fifo", "priority-mmu"
 *  or "aging-mmu" (MMU in which a request is overtaken at most `overtakes_max` times and
 *  `overtake_ms_max` long). */
HIPPOGRIFF_API int hippogriff_node_set_policy(const char* policy,
                                              uint32_t overtakes_max,
                                              int64_t overtake_ms_max);

/** For programs that start others: keeps this process's reservations when it goes on as another
 *  program (exec), until that and all that inherit its descriptors have ended. Stores what
 *  HIPPOGRIFF_RESERVATION has to be there; free it with hippogriff_free_string. Behind a server
 * they are kept as long as this process, which has to stay, and those of the same user that use
 * them. */
HIPPOGRIFF_API int hippogriff_node_hand_over(char** leader);

/** Serves the node of this user's segment on a Unix socket, for programs that cannot share memory
 * with it (HIPPOGRIFF_NODE=unix:/path there), until `stop_fd` (-1: none) is readable. `socket_path`
 * NULL: hippogriff.sock in the user's folder for such. Clients are this user's and root's; with
 * "group:NAME" or "group:NAME:/path" also those of a group's members, each of whom has a quarter of
 * the clients at most. */
HIPPOGRIFF_API int hippogriff_noded_run(const char* socket_path, int stop_fd);

/* --- What it knows ---------------------------------------------------------------------------- */

/** The last failure of a call on this thread. */
HIPPOGRIFF_API void hippogriff_last_error(hippogriff_error* error);

/** A short name of a status, e.g. "invalid argument". */
HIPPOGRIFF_API const char* hippogriff_status_name(int status);

/** The name of a route: "auto", "direct", "mapped", "pipelined", "parked". */
HIPPOGRIFF_API const char* hippogriff_route_name(int route);

/** "0.1.0" */
HIPPOGRIFF_API const char* hippogriff_version(void);

/** JSON: devices, drives, and what each route can do for the files below `path` (NULL: ".") and why
 *  not. Makes no context on a GPU. Free each result with hippogriff_free_string. */
HIPPOGRIFF_API int hippogriff_info(const char* path, char** json);

/** JSON: for this extent every route's predicted seconds or why it cannot, and the choice.
 *  `direction` 0 is send, 1 recv. */
HIPPOGRIFF_API int hippogriff_explain(
    const char* path, size_t offset, size_t size, int direction, const char* device, char** json);

/** JSON: counters since init: transfers, bytes and seconds by route and direction, pinned bytes,
 *  parked bytes, device memory. */
HIPPOGRIFF_API int hippogriff_stats(char** json);

/** What makes this process's transfers slower than they could be, and what to change, a sentence a
 *  line; NULL when nothing does. hippogriff_info has the same in "notices". Free it with
 *  hippogriff_free_string. */
HIPPOGRIFF_API int hippogriff_notices(char** text);

/** Measures the device's link and the drive below `directory` (about 10 s, up to 1 GiB of temporary
 *  file), keeps the result for the router in the calibration file, and returns it as JSON.
 *  `progress` (may be NULL) is called from this thread; non-zero cancels. */
HIPPOGRIFF_API int hippogriff_calibrate(const char* device,
                                        const char* directory,
                                        int (*progress)(void* context,
                                                        const char* step,
                                                        double fraction),
                                        void* context,
                                        char** json);

HIPPOGRIFF_API void hippogriff_free_string(char* string);

#ifdef __cplusplus
}
#endif

#endif /* HIPPOGRIFF_HIPPOGRIFF_H_ */
