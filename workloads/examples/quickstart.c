/* Moves a file to the GPU (or to device `host` where there is none) and back to another file. */
#include <hippogriff/hippogriff.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int fail(const char* call) {
  hippogriff_error error;
  hippogriff_last_error(&error);
  fprintf(stderr, "%s: %s\n", call, error.message);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: quickstart_c IN OUT\n");
    return 2;
  }
  int in = open(argv[1], O_RDONLY);
  int out = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0666);
  if (in < 0 || out < 0) {
    perror(in < 0 ? argv[1] : argv[2]);
    return 1;
  }

  /* quickstart-begin */
  void* data = NULL; /* NULL: hippogriff allocates device memory */
  if (hippogriff_init() != HIPPOGRIFF_OK) {
    return fail("hippogriff_init");
  }
  size_t size = hippogriff_send(in, &data, 0, 0); /* all of the file, by the best route */
  if (size == HIPPOGRIFF_FAILED) {
    return fail("hippogriff_send");
  }
  /* ... kernels work on `data` here ... */
  if (size > 0 && hippogriff_recv(out, data, 0, size) != size) {
    return fail("hippogriff_recv");
  }
  hippogriff_deinit(); /* frees `data` */
  /* quickstart-end */

  printf("moved %zu bytes to the device and back\n", size);
  return close(in) != 0 || close(out) != 0;
}
