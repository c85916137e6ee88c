/* A C program as a user would write it, built against an installed hippogriff by the test beside
 * it: a file goes to the device `host` and back, and must be the same. usage: main EXPECTED_VERSION
 * SCRATCH_FILE */
#define _POSIX_C_SOURCE 200809L
#include <hippogriff/hippogriff.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { size_bytes = 100003 };

static int fail(const char* what) {
  hippogriff_error error;
  hippogriff_last_error(&error);
  fprintf(stderr, "%s: %s\n", what, error.message == NULL ? "no message" : error.message);
  return 1;
}

static int move_both_ways(int fd, unsigned char* bytes) {
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.device = "host";
  void* device_memory = NULL;
  hippogriff_transfer* transfer = NULL;
  if (hippogriff_send_async(fd, &device_memory, 0, 0, &options, &transfer) != HIPPOGRIFF_OK) {
    return fail("send");
  }
  if (hippogriff_wait(transfer, 60000) != HIPPOGRIFF_OK) {
    return fail("wait");
  }
  device_memory = hippogriff_address(transfer);
  hippogriff_release(transfer);
  memset(bytes, 0, size_bytes);
  if (hippogriff_copy_to_host(bytes, device_memory, size_bytes) != HIPPOGRIFF_OK) {
    return fail("copy to host");
  }
  if (hippogriff_recv(fd, device_memory, size_bytes, size_bytes) != size_bytes) {
    return fail("recv");
  }
  return hippogriff_free(device_memory) == HIPPOGRIFF_OK ? 0 : fail("free");
}

static int check(const char* path) {
  static unsigned char written[size_bytes];
  static unsigned char read_back[size_bytes];
  for (size_t i = 0; i < size_bytes; ++i) {
    written[i] = (unsigned char)(i * 31 + i / 251);
  }
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, written, size_bytes) != size_bytes) {
    perror(path);
    return 1;
  }
  if (move_both_ways(fd, read_back) != 0) {
    return 1;
  }
  if (memcmp(written, read_back, size_bytes) != 0) {
    fprintf(stderr, "the device's bytes differ from the file's\n");
    return 1;
  }
  memset(read_back, 0, size_bytes);
  if (pread(fd, read_back, size_bytes, size_bytes) != size_bytes ||
      memcmp(written, read_back, size_bytes) != 0) {
    fprintf(stderr, "the bytes that came back differ\n");
    return 1;
  }
  return close(fd);
}

int main(int argc, char** argv) {
  if (argc != 3 || strcmp(hippogriff_version(), argv[1]) != 0) {
    fprintf(stderr, "version %s, expected %s\n", hippogriff_version(), argc > 1 ? argv[1] : "?");
    return 1;
  }
  if (hippogriff_init() != HIPPOGRIFF_OK) {
    return fail("init");
  }
  int result = check(argv[2]);
  return hippogriff_deinit() == HIPPOGRIFF_OK ? result : fail("deinit");
}
