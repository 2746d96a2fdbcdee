#include "feedback/op_exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "feedback/sha256.h"

namespace lathe {

uint64_t layout_digest(const std::vector<FieldView>& fields, const char* base) {
  std::string text;
  const auto place = [&](const void* p) { return p ? static_cast<const char*>(p) - base : -1; };
  for (const FieldView& f : fields)
    text += fmt::format("{} {} {} {} {} {} {} {} {}\n", f.name, static_cast<int>(f.role), static_cast<int>(f.dtype),
                        f.elements() ? place(f.data) : -1, f.rows, f.width, f.stride, place(f.scale), f.block);
  return std::stoull(sha256_hex(text).substr(0, 16), nullptr, 16);
}

void set_text(char* to, size_t capacity, std::string_view text) {
  const size_t n = std::min(text.size(), capacity - 1);
  std::copy_n(text.data(), n, to);
  to[n] = 0;
}

Result<bool> send_packet(int socket, const void* message, size_t bytes) {
  ssize_t n;
  while ((n = send(socket, message, bytes, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return false;
  if (n != static_cast<ssize_t>(bytes)) return internal("can't send to the other process: {}", std::strerror(errno));
  return true;
}

Result<bool> receive_packet(int socket, void* message, size_t bytes, int timeout_ms) {
  pollfd wait{socket, POLLIN, 0};
  int ready;
  while ((ready = poll(&wait, 1, timeout_ms)) < 0 && errno == EINTR) {
  }
  if (ready == 0) return unavailable("no answer within {} s", timeout_ms / 1000);
  ssize_t n;
  while ((n = recv(socket, message, bytes, MSG_TRUNC)) < 0 && errno == EINTR) {
  }
  if (n == 0 || (n < 0 && errno == ECONNRESET)) return false;
  if (n != static_cast<ssize_t>(bytes))
    return corrupt("a message of {} bytes; expected {}: another version of lathe?", n, bytes);
  return true;
}

}  // namespace lathe
