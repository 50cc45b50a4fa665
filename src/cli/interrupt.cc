#include "cli/interrupt.h"

#include <csignal>

namespace kipp {
namespace {

std::atomic<bool> g_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

struct sigaction g_earlier_int {};
struct sigaction g_earlier_term {};

void on_signal(int) { g_requested.store(true, std::memory_order_relaxed); }

}  // namespace

Interrupt::Interrupt() {
  g_requested.store(false, std::memory_order_relaxed);
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal finds the default action
  ::sigaction(SIGINT, &action, &g_earlier_int);
  ::sigaction(SIGTERM, &action, &g_earlier_term);
}

Interrupt::~Interrupt() {
  ::sigaction(SIGINT, &g_earlier_int, nullptr);
  ::sigaction(SIGTERM, &g_earlier_term, nullptr);
}

const std::atomic<bool>& Interrupt::flag() { return g_requested; }

}  // namespace kipp
