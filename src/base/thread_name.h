// What a thread is called in top, in a debugger and in /proc.
#pragma once

#include <pthread.h>

namespace kipp {

// The calling thread; at most 15 characters.
inline void name_this_thread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace kipp
