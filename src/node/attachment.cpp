// Two images of the books, and the word that says which one counts.
#include "node/attachment.hpp"

#include "node/futex.hpp"

#include <climits>
#include <cstring>

namespace hippogriff::node {

Attachment::Attachment(const SegmentPlace& place,
                       const Books& fresh,
                       const Steps& steps,
                       std::optional<Leader> leader,
                       std::uint32_t served_pid,
                       std::optional<Leader> former_self)
    : steps_(steps),
      fresh_(fresh),
      segment_(place, fresh, steps),
      slot_(segment_, leader, served_pid, former_self),
      board_(segment_, slot_),
      transfers_(segment_, slot_),
      arrays_(segment_, slot_),
      lock_(segment_, slot_, steps) {}

std::span<const std::byte> Attachment::half(std::uint64_t sequence) const noexcept {
  return segment_.shared().halves.at(sequence % 2);
}

bool Attachment::read_half(std::uint64_t which, Books& books) {
  std::uint64_t sequence = 0;
  image_is_right_ = false;
  if (!decode_books(half(which), image_, sequence, books) || sequence % 2 != which % 2) {
    return false;
  }
  sequence_ = sequence;
  image_is_right_ = true;
  return true;
}

// Where nobody has committed since we did, or looked: bytes that are those of an image which was
// right are right, and are not checked once more. What is used is our own copy.
bool Attachment::read_known(std::uint64_t named, Books& books) const {
  if (!image_is_right_ || sequence_ != named ||
      std::memcmp(half(named).data(), image_.data(), image_.size()) != 0) {
    return false;
  }
  unpack_books(image_, books);
  return true;
}

void Attachment::read(Books& books) {
  const std::uint64_t named = segment_.shared().commit.load(std::memory_order_acquire);
  named_ = named;
  if (read_known(named, books) || (read_half(named, books) && sequence_ == named)) {
    return;
  }
  // Damaged: the later of the two that is whole.
  const bool even = read_half(0, books);
  const std::uint64_t even_sequence = sequence_;
  const bool odd = read_half(1, books);
  if (even && (!odd || even_sequence > sequence_)) {
    static_cast<void>(read_half(0, books));
  } else if (!odd) {
    books = fresh_;
    sequence_ = 0;
  }
  books.generation = static_cast<std::uint64_t>(monotonic_ns());
  image_is_right_ = false;
}

// Whoever has taken the lock from us by then may not see what we committed; whoever takes it later
// does: the exchange comes before the second look, for all processors.
bool Attachment::commit(const Books& books) {
  if (!lock_.owned()) {
    return false;
  }
  const std::uint64_t next = sequence_ + 1;
  image_is_right_ = false;
  encode_books(books, next, image_);
  std::byte* target = segment_.shared().halves.at(next % 2).data();
  step(steps_, "before image");
  std::memcpy(target, image_.data(), sizeof(ImageHeader));
  step(steps_, "after header");
  const std::size_t rest = image_.size() - sizeof(ImageHeader);
  const std::size_t part = rest / 2;
  std::memcpy(target + sizeof(ImageHeader), image_.data() + sizeof(ImageHeader), part);
  step(steps_, "within records");
  std::memcpy(
      target + sizeof(ImageHeader) + part, image_.data() + sizeof(ImageHeader) + part, rest - part);
  step(steps_, "before commit");
  std::uint64_t named = named_;
  if (!segment_.shared().commit.compare_exchange_strong(named, next, std::memory_order_seq_cst)) {
    return false;  // somebody else's commit, whom a damaged lock let in
  }
  sequence_ = next;
  named_ = next;
  image_is_right_ = true;
  step(steps_, "after commit");
  return lock_.owned();
}

void Attachment::wake(const ClientSet& clients) noexcept {
  if (clients.none()) {
    return;
  }
  for (std::uint32_t client = 0; client < clients_max; ++client) {
    if (clients.test(client)) {
      std::atomic<std::uint32_t>& word = segment_.shared().signals.at(client);
      word.fetch_add(1, std::memory_order_release);
      step(steps_, "before wake");
      futex_wake(word, INT_MAX);
    }
  }
}

std::uint32_t Attachment::signal(std::uint32_t client) const noexcept {
  return segment_.shared().signals.at(client).load(std::memory_order_acquire);
}

void Attachment::wait(std::uint32_t client,
                      std::uint32_t seen_signal,
                      std::chrono::nanoseconds at_most) const noexcept {
  futex_wait(segment_.shared().signals.at(client), seen_signal, at_most);
}

}  // namespace hippogriff::node
