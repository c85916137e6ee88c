// Moves a file to the GPU (or to device `host` where there is none) and back to another file, and
// shows how far it is meanwhile.
#include <hippogriff/hippogriff.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  if (argc != 3) {
    std::cerr << "usage: quickstart_cpp IN OUT\n";
    return 2;
  }
  try {
    // quickstart-begin
    const hippogriff::Runtime runtime;
    const hippogriff::DeviceBuffer data = hippogriff::send(argv[1]);  // allocates, moves, waits

    hippogriff::Transfer back = hippogriff::recv_async(argv[2], data);
    while (!back.wait(100ms)) {  // throws hippogriff::TransferError when it fails
      std::cout << back.progress().bytes_done << " bytes\n";
    }
    std::cout << back.report() << '\n';  // the route taken, seconds, bytes
    // quickstart-end
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
